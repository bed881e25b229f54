// Package mockproto is what the frontend and the mock engine say to each other through the plane until both speak
// package serving: the payload of a request, the records of its response and the trailer of its end.
//
//   - Payload: one JSON object, Request.
//   - Record: the UTF-8 text of exactly one token, nothing around it. One record is one token.
//   - Trailer of a complete end: one JSON object, Trailer.
//
// A response that cannot be made is no record: it ends as failed, with a code and a text (responseplane.Failure).
package mockproto

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Version of the payload that this code writes. A worker refuses others by name.
const Version = 1

// Kinds of request.
const (
	KindChat       = "chat"       // /v1/chat/completions
	KindCompletion = "completion" // /v1/completions
)

// Finish reasons of a complete response.
const (
	FinishStop   = "stop"   // the engine ended it, or a stop string came
	FinishLength = "length" // as many tokens were made as the request allows
)

// MaxStops is how many stop strings a request may have.
const MaxStops = 4

// Request is the payload.
type Request struct {
	Version int `json:"v"`
	// ID is the request id. The text of every token is a function of it (package tokentext).
	ID    string `json:"id"`
	Model string `json:"model"`
	Kind  string `json:"kind"`
	// PromptTokens is the length of the prompt. The mock engine has no use for the prompt itself, so it does not
	// travel.
	PromptTokens int `json:"prompt_tokens"`
	// MaxTokens bounds the output; 0 leaves the length to the engine.
	MaxTokens int `json:"max_tokens,omitempty"`
	// Stop ends the output before the first of these strings; it is not part of the output.
	Stop []string `json:"stop,omitempty"`
}

// VersionError says that a payload is of another version.
type VersionError struct{ Got int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("mockproto: the payload is version %d, this worker reads %d (run frontend and workers of one "+
		"release)", e.Got, Version)
}

// Validate returns everything that does not hold.
func (r Request) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("mockproto: "+format, a...)) }
	if r.ID == "" {
		bad("id is empty")
	}
	if r.Model == "" {
		bad("model is empty")
	}
	if r.Kind != KindChat && r.Kind != KindCompletion {
		bad("kind is %q, expected %q or %q", r.Kind, KindChat, KindCompletion)
	}
	if r.PromptTokens < 0 {
		bad("prompt_tokens is %d, expected 0 or more", r.PromptTokens)
	}
	if r.MaxTokens < 0 {
		bad("max_tokens is %d, expected 0 (the engine's length) or more", r.MaxTokens)
	}
	if len(r.Stop) > MaxStops {
		bad("stop has %d strings, at most %d are taken", len(r.Stop), MaxStops)
	}
	for _, s := range r.Stop {
		if s == "" {
			bad("stop has an empty string")
		}
	}
	return errors.Join(errs...)
}

// Encode returns the payload of r, with Version set.
func (r Request) Encode() ([]byte, error) {
	r.Version = Version
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// DecodeRequest reads and checks a payload. A payload of another version gives a *VersionError.
func DecodeRequest(p []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(p, &r); err != nil {
		return Request{}, fmt.Errorf("mockproto: payload: %w", err)
	}
	if r.Version != Version {
		return Request{}, &VersionError{Got: r.Version}
	}
	if err := r.Validate(); err != nil {
		return Request{}, err
	}
	return r, nil
}

// Trailer is what the end of a complete response carries.
type Trailer struct {
	FinishReason     string `json:"finish_reason"`
	PromptTokens     int    `json:"prompt_tokens"`
	CompletionTokens int    `json:"completion_tokens"`
}

// Append appends the trailer's JSON to dst without allocating (beyond dst's growth) and returns it. FinishReason must
// be one of the Finish constants.
func (t Trailer) Append(dst []byte) []byte {
	dst = append(dst, `{"finish_reason":"`...)
	dst = append(dst, t.FinishReason...)
	dst = append(dst, `","prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(t.PromptTokens), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(t.CompletionTokens), 10)
	return append(dst, '}')
}

// DecodeTrailer reads and checks a trailer.
func DecodeTrailer(p []byte) (Trailer, error) {
	var t Trailer
	if len(bytes.TrimSpace(p)) == 0 {
		return t, errors.New("mockproto: the end has no trailer")
	}
	if err := json.Unmarshal(p, &t); err != nil {
		return Trailer{}, fmt.Errorf("mockproto: trailer: %w", err)
	}
	if t.FinishReason != FinishStop && t.FinishReason != FinishLength {
		return Trailer{}, fmt.Errorf("mockproto: trailer: finish_reason is %q, expected %q or %q", t.FinishReason,
			FinishStop, FinishLength)
	}
	if t.PromptTokens < 0 || t.CompletionTokens < 0 {
		return Trailer{}, fmt.Errorf("mockproto: trailer: negative token counts (%d, %d)", t.PromptTokens,
			t.CompletionTokens)
	}
	return t, nil
}
