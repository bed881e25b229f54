package openai

import (
	"encoding/json"
	"errors"
	"fmt"
)

// MaxStops is how many stop strings a request may have.
const MaxStops = 4

// Request is what the frontend understands of a request. Fields that it does not know are accepted and ignored.
type Request struct {
	Kind     Kind
	Model    string
	Messages []Message // chat: at least one
	Prompt   Prompt    // completions
	Stream   bool
	// IncludeUsage is stream_options.include_usage; it means nothing without Stream.
	IncludeUsage bool
	// MaxTokens is max_completion_tokens, or max_tokens where that is not given; 0 when neither is.
	MaxTokens int
	Stop      []string
	User      string
}

// Message is one message of a chat.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
}

type wireRequest struct {
	Model         string    `json:"model"`
	Messages      []Message `json:"messages"`
	Prompt        *Prompt   `json:"prompt"`
	Stream        bool      `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           *int   `json:"max_tokens"`
	MaxCompletionTokens *int   `json:"max_completion_tokens"`
	N                   *int   `json:"n"`
	Stop                stops  `json:"stop"`
	User                string `json:"user"`
}

// ParseRequest reads and checks a request's body. The error is one whose status is 400.
func ParseRequest(k Kind, body []byte) (Request, *Error) {
	var w wireRequest
	if err := json.Unmarshal(body, &w); err != nil {
		return Request{}, badJSON(err)
	}
	if w.Model == "" {
		return Request{}, Invalid("model", "missing_required_parameter",
			"model is missing: name the model that shall answer")
	}
	r := Request{Kind: k, Model: w.Model, Stream: w.Stream, IncludeUsage: w.StreamOptions.IncludeUsage, Stop: w.Stop,
		User: w.User}
	switch k {
	case Chat:
		if len(w.Messages) == 0 {
			return Request{}, Invalid("messages", "missing_required_parameter",
				"messages is missing or empty: send at least one message")
		}
		for i, m := range w.Messages {
			if m.Role == "" {
				return Request{}, Invalid(fmt.Sprintf("messages[%d].role", i), "missing_required_parameter",
					fmt.Sprintf("messages[%d].role is missing: say user, assistant or system", i))
			}
		}
		r.Messages = w.Messages
	default:
		if w.Prompt == nil {
			return Request{}, Invalid("prompt", "missing_required_parameter",
				"prompt is missing: send a string or one array of token ids")
		}
		r.Prompt = *w.Prompt
	}
	if w.N != nil && *w.N != 1 {
		return Request{}, Invalid("n", "unsupported_value",
			fmt.Sprintf("n is %d: only 1 answer a request is supported, send several requests", *w.N))
	}
	for _, m := range []struct {
		name  string
		value *int
	}{{"max_tokens", w.MaxTokens}, {"max_completion_tokens", w.MaxCompletionTokens}} { // the later one wins
		if m.value == nil {
			continue
		}
		if *m.value < 1 {
			return Request{}, Invalid(m.name, "invalid_value", fmt.Sprintf("%s is %d, expected 1 or more", m.name,
				*m.value))
		}
		r.MaxTokens = *m.value
	}
	return r, nil
}

// PromptTokens is the length of the prompt for an engine that has no tokenizer: a word is a token, a token id is one
// too.
func (r *Request) PromptTokens() int {
	if r.Kind != Chat {
		return r.Prompt.tokens()
	}
	n := 0
	for _, m := range r.Messages {
		n += words(string(m.Content))
	}
	return n
}

// badJSON says what is wrong with a body, and where.
func badJSON(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return Invalid("", "invalid_json", fmt.Sprintf("the body is a JSON %s, expected an object", e.Value))
		}
		return Invalid(e.Field, "invalid_type", fmt.Sprintf("%s is a JSON %s, expected %s", e.Field, e.Value,
			jsonName(e)))
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return Invalid("", "invalid_json", fmt.Sprintf("the body is not valid JSON: %v at byte %d", e, e.Offset))
	}
	return Invalid("", "invalid_json", "the body is not valid JSON: "+err.Error())
}

// jsonName is the JSON name of a Go type that the request has a field of.
func jsonName(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "int":
		return "an integer"
	case "bool":
		return "true or false"
	case "string":
		return "a string"
	case "slice":
		return "an array"
	}
	return "an object"
}
