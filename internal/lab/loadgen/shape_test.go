package loadgen

import (
	"encoding/json"
	"testing"
)

// FuzzShape holds that an event which passes by its shape gives what scanning it would.
func FuzzShape(f *testing.F) {
	for _, a := range events {
		f.Add([]byte(a), []byte(a))
	}
	f.Add([]byte(`{"choices":[{"delta":{"content":"a"}}]}`), []byte(`{"choices":[{"delta":{"content":"bcd"}}]}`))
	f.Add([]byte(`{"choices":[{"delta":{"content":"a"}}]}`),
		[]byte(`{"choices":[{"delta":{"content":"b","content":"a"}}]}`))
	for _, a := range typedEvents {
		f.Add([]byte(a), []byte(a))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for _, typed := range []bool{false, true} {
			c, err := scanOf(typed)(first)
			if err != nil || !json.Valid(first) || duplicates(first) {
				return
			}
			var s shape
			s.learn(first, c)
			text, ok := s.content(second)
			if !ok {
				continue
			}
			want, err := scanOf(typed)(second)
			if err != nil || string(text) != string(want.content) || want.tokens >= 0 || want.opened != c.opened ||
				want.done != 0 || want.last || want.failed {
				t.Fatalf("after %s the event %s gave %q, scanning it gives %+v, %v", first, second, text, want, err)
			}
		}
	})
}

func TestShapeIsLearned(t *testing.T) {
	var s shape
	first, second := []byte(`{"id":"1","choices":[{"delta":{"content":"a"},"finish_reason":null}]}`),
		[]byte(`{"id":"1","choices":[{"delta":{"content":" token"},"finish_reason":null}]}`)
	c, err := scanChoices(first)
	if err != nil {
		t.Fatal(err)
	}
	s.learn(first, c)
	if text, ok := s.content(second); !ok || string(text) != " token" {
		t.Errorf("%q %v", text, ok)
	}
	for _, other := range []string{
		`{"id":"2","choices":[{"delta":{"content":"a"},"finish_reason":null}]}`,
		`{"id":"1","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`,
		`{"id":"1","choices":[{"delta":{"content":"a\"b"},"finish_reason":null}]}`,
		`{"id":"1","choices":[{"delta":{"content":""},"finish_reason":null}]}`,
	} {
		if text, ok := s.content([]byte(other)); ok {
			t.Errorf("%s passed as %q", other, text)
		}
	}
}
