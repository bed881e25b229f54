package mockproto

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestRequestRoundTrip(t *testing.T) {
	in := Request{ID: "req-1", Model: "m \"x\"", Kind: KindChat, PromptTokens: 1024, MaxTokens: 256,
		Stop: []string{"a", "\n"}}
	p, err := in.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := DecodeRequest(p)
	if err != nil {
		t.Fatal(err)
	}
	in.Version = Version
	if !reflect.DeepEqual(in, out) {
		t.Errorf("got %+v, want %+v", out, in)
	}
}

// TestPayloadIsFixed pins the bytes: frontend and worker may be of different builds.
func TestPayloadIsFixed(t *testing.T) {
	p, err := Request{ID: "r", Model: "m", Kind: KindCompletion, PromptTokens: 3}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(p), `{"v":1,"id":"r","model":"m","kind":"completion","prompt_tokens":3}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestBadRequests(t *testing.T) {
	var ve *VersionError
	if _, err := DecodeRequest([]byte(`{"v":2,"id":"r","model":"m","kind":"chat"}`)); !errors.As(err, &ve) ||
		ve.Got != 2 {
		t.Errorf("version 2: %v", err)
	}
	for in, want := range map[string]string{
		`{`:                                 "payload",
		`{"v":1,"model":"m","kind":"chat"}`: "id is empty",
		`{"v":1,"id":"r","kind":"chat"}`:    "model is empty",
		`{"v":1,"id":"r","model":"m","kind":"x"}`:                                            "kind is",
		`{"v":1,"id":"r","model":"m","kind":"chat","prompt_tokens":-1}`:                      "prompt_tokens is -1",
		`{"v":1,"id":"r","model":"m","kind":"chat","max_tokens":-1}`:                         "max_tokens is -1",
		`{"v":1,"id":"r","model":"m","kind":"chat","stop":[""]}`:                             "empty string",
		`{"v":1,"id":"r","model":"m","kind":"chat","stop":["a","b","c","d","e"]}`:            "at most 4",
		`{"v":1,"id":"r","model":"m","kind":"chat","max_tokens":1.5}`:                        "payload",
		`{"v":1,"id":"r","model":"m","kind":"chat","prompt_tokens":99999999999999999999999}`: "payload",
	} {
		if _, err := DecodeRequest([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", in, err, want)
		}
	}
}

func TestTrailer(t *testing.T) {
	in := Trailer{FinishReason: FinishLength, PromptTokens: 1024, CompletionTokens: 256}
	p := in.Append(nil)
	ref, _ := json.Marshal(in)
	if string(p) != string(ref) {
		t.Errorf("appended %s, encoding/json says %s", p, ref)
	}
	out, err := DecodeTrailer(p)
	if err != nil || out != in {
		t.Errorf("got %+v, %v", out, err)
	}
	for in, want := range map[string]string{
		"":                          "no trailer",
		"{":                         "trailer",
		`{"finish_reason":"maybe"}`: "finish_reason",
		`{"finish_reason":"stop","prompt_tokens":-1}`: "negative",
	} {
		if _, err := DecodeTrailer([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", in, err, want)
		}
	}
	buf := make([]byte, 0, 128)
	if n := testing.AllocsPerRun(100, func() { buf = in.Append(buf[:0]) }); n != 0 {
		t.Errorf("Append allocates %v times", n)
	}
}
