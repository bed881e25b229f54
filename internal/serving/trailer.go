package serving

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// MaxTrailer is the longest trailer of an end.
const MaxTrailer = 16 << 10

// Usage is what the engine said it used.
type Usage struct{ PromptTokens, CompletionTokens uint64 }

// EngineAnswer is what an engine said in the place of an answer that was asked for: another worker may do better.
type EngineAnswer struct {
	Head
	Body []byte // empty where it is longer than a trailer takes
}

// Trailer is what the end of an answer carries.
type Trailer struct {
	Usage         *Usage   // nil: the engine did not say
	FinishReasons []string // by choice, "" where none was seen
	Answer        *EngineAnswer
}

// Fields of a trailer. A reader skips those that it does not know.
const (
	fieldUsage  = 1
	fieldFinish = 2
	fieldAnswer = 3
)

const (
	maxChoices = 128 // finish reasons that are kept
	maxReason  = 64
)

// Append appends the trailer, with the engine's body left out, and then its headers, where they would not fit.
func (t *Trailer) Append(dst []byte) []byte {
	start := len(dst)
	if t.Usage != nil {
		dst = append(dst, fieldUsage, 0, 16)
		dst = binary.BigEndian.AppendUint64(dst, t.Usage.PromptTokens)
		dst = binary.BigEndian.AppendUint64(dst, t.Usage.CompletionTokens)
	}
	if n := min(len(t.FinishReasons), maxChoices); n > 0 {
		at := len(dst)
		dst = append(dst, fieldFinish, 0, 0)
		for _, s := range t.FinishReasons[:n] {
			dst = appendShort(dst, s[:min(len(s), maxReason)])
		}
		binary.BigEndian.PutUint16(dst[at+1:], uint16(len(dst)-at-3))
	}
	if t.Answer == nil || t.Answer.check() != nil {
		return dst
	}
	for _, a := range []EngineAnswer{*t.Answer, {Head: t.Answer.Head}, {Head: Head{Status: t.Answer.Status}}} {
		at := len(dst)
		b := append(dst, fieldAnswer, 0, 0)
		b = append(appendHead(b, &a.Head), a.Body...)
		if len(b)-start <= MaxTrailer {
			binary.BigEndian.PutUint16(b[at+1:], uint16(len(b)-at-3))
			return b
		}
	}
	return dst
}

// DecodeTrailer reads a trailer; none is an empty one.
func DecodeTrailer(p []byte) (Trailer, error) {
	var t Trailer
	for in := (reader{b: p}); len(in.b) > 0; {
		field := in.u8()
		v := reader{b: in.take(in.u16())}
		if in.bad {
			return Trailer{}, fmt.Errorf("%w trailer", ErrMalformed)
		}
		switch field {
		case fieldUsage:
			t.Usage = &Usage{v.u64(), v.u64()}
			v.bad = v.bad || len(v.b) > 0
		case fieldFinish:
			t.FinishReasons = nil
			for len(v.b) > 0 && len(t.FinishReasons) < maxChoices {
				t.FinishReasons = append(t.FinishReasons, v.short())
			}
		case fieldAnswer:
			t.Answer = &EngineAnswer{Head: v.head()}
			t.Answer.Body = v.b
		}
		if v.bad {
			return Trailer{}, fmt.Errorf("%w trailer", ErrMalformed)
		}
	}
	return t, nil
}

// Observe notes the usage and the finish reasons that an event's data, or the body of what is no stream, name.
// It parses only what holds one of the words.
func (t *Trailer) Observe(data []byte) {
	if !mentions(data, `"usage":`) && !mentions(data, `_reason":`) {
		return
	}
	type usage struct {
		Prompt     *uint64 `json:"prompt_tokens"`
		Completion *uint64 `json:"completion_tokens"`
		Input      *uint64 `json:"input_tokens"`
		Output     *uint64 `json:"output_tokens"`
	}
	var v struct {
		Usage   *usage
		Message struct{ Usage *usage } // messages: message_start
		Nested  struct{ Usage *usage } `json:"response"` // responses
		Delta   struct {
			Reason string `json:"stop_reason"`
		}
		Reason  string `json:"stop_reason"`
		Choices []struct {
			Index  int
			Reason string `json:"finish_reason"`
		}
	}
	if json.Unmarshal(data, &v) != nil {
		return
	}
	for _, u := range []*usage{v.Message.Usage, v.Nested.Usage, v.Usage} {
		if u == nil {
			continue
		}
		if t.Usage == nil {
			t.Usage = &Usage{}
		}
		for _, n := range []*uint64{u.Prompt, u.Input} {
			if n != nil {
				t.Usage.PromptTokens = *n
			}
		}
		for _, n := range []*uint64{u.Completion, u.Output} {
			if n != nil {
				t.Usage.CompletionTokens = *n
			}
		}
	}
	t.finish(0, v.Reason)
	t.finish(0, v.Delta.Reason)
	for _, c := range v.Choices {
		t.finish(c.Index, c.Reason)
	}
}

func (t *Trailer) finish(choice int, reason string) {
	if reason == "" || choice < 0 || choice >= maxChoices {
		return
	}
	for len(t.FinishReasons) <= choice {
		t.FinishReasons = append(t.FinishReasons, "")
	}
	t.FinishReasons[choice] = reason
}

// mentions says whether data have the key with a value that is not null: many engines write nulls into every event.
func mentions(data []byte, key string) bool {
	for {
		i := bytes.Index(data, []byte(key))
		if i < 0 {
			return false
		}
		data = data[i+len(key):]
		if !bytes.HasPrefix(bytes.TrimLeft(data, " "), []byte("null")) {
			return true
		}
	}
}
