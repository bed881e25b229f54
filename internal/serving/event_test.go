package serving

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		d     Dialect
		event string
		want  Class
	}{
		{DialectChat, chunk, ClassEvent},
		{DialectChat, "data: [DONE]", ClassLast},
		{DialectChat, "data:[DONE] \r\n", ClassLast},
		{DialectChat, `data: {"choices":[{"delta":{"content":"[DONE]"}}]}`, ClassEvent},
		{DialectChat, ": ping", ClassComment},
		{DialectChat, "id: 4\nretry: 10", ClassComment},
		{DialectChat, `data: {"error":{"message":"no"}}`, ClassError},
		{DialectChat, `data: {"error":null,"choices":[]}`, ClassEvent},
		{DialectChat, `data: {"Error":{"message":"x"},"choices":[{"delta":{"content":"\"error\""}}]}`, ClassEvent},
		{DialectChat, `data: {"choices":[{"delta":{"error":1}}]}`, ClassEvent},
		{DialectChat, "data: {\ndata: \"error\":1}", ClassError},
		{DialectChat, "event: error\ndata: x", ClassError},
		{DialectChat, "data: {broken \"error\"", ClassEvent},
		{DialectResponses, "event: response.output_text.delta\ndata: {}", ClassEvent},
		{DialectResponses, "event: response.completed\r\ndata: {}", ClassLast},
		{DialectResponses, `data: {"type":"response.incomplete"}`, ClassLast},
		{DialectResponses, "event: response.failed\ndata: {}", ClassError},
		{DialectResponses, "data: {\"type\":\"error\"}", ClassError},
		{DialectResponses, "event: message_stop\ndata: {}", ClassEvent},
		{DialectResponses, "data: [DONE]", ClassEvent},
		{DialectMessages, "event: message_stop\rdata: {}", ClassLast},
		{DialectMessages, "event: error\ndata: {}", ClassError},
		{DialectMessages, "event: ping\ndata: {}", ClassEvent},
		{DialectOther, "data: [DONE]", ClassEvent},
		{DialectOther, `data: {"error":"x"}`, ClassError},
	} {
		if got := c.d.Classify([]byte(c.event)); got != c.want {
			t.Errorf("dialect %d, %q: class %d, want %d", c.d, c.event, got, c.want)
		}
	}
}

func TestEventFieldsLeaveTheEventAlone(t *testing.T) {
	event := []byte("data: a\nevent: e\ndata: b\n: c")
	before := bytes.Clone(event)
	name, data, ok := EventFields(event)
	if name != "e" || string(data) != "a\nb" || !ok {
		t.Errorf("got %q, %q, %v", name, data, ok)
	}
	if !bytes.Equal(event, before) {
		t.Errorf("the event is %q now", event)
	}
}

// TestBrokenAnswers: what the frontend adds is an error of the dialect, and never the mark of a complete answer in an
// API that has none for broken ones.
func TestBrokenAnswers(t *testing.T) {
	for d, last := range map[Dialect]string{DialectChat: "data: [DONE]", DialectResponses: "", DialectMessages: "",
		DialectOther: ""} {
		text := string(d.AppendBroken(nil, "upstream_error", "lost", "the \"worker\"\nwent"))
		events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
		if d.Classify([]byte(events[0])) != ClassError {
			t.Errorf("dialect %d: %q is no error", d, events[0])
		}
		if _, data, _ := EventFields([]byte(events[0])); !json.Valid(data) || !bytes.Contains(data,
			[]byte("upstream_error")) {
			t.Errorf("dialect %d: data are %q", d, data)
		}
		if (len(events) == 2) != (last != "") || last != "" && events[1] != last {
			t.Errorf("dialect %d: %q", d, events)
		}
	}
}

func TestObserve(t *testing.T) {
	for _, c := range []struct {
		data       []string
		prompt, of uint64
		reasons    string
	}{
		{[]string{`{"choices":[{"index":1,"finish_reason":"stop"}]}`,
			`{"choices":[{"index":0,"finish_reason":"length"}]}`,
			`{"choices":[],"usage": {"prompt_tokens":3,"completion_tokens":4}}`}, 3, 4, "length,stop"},
		{[]string{`{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`}, 9, 5,
			"end_turn"},
		{[]string{`{"type":"response.completed","response":{"usage":{"input_tokens":1,"output_tokens":2}}}`}, 1, 2, ""},
	} {
		var tr Trailer
		for _, d := range c.data {
			tr.Observe([]byte(d))
		}
		if tr.Usage == nil || tr.Usage.PromptTokens != c.prompt || tr.Usage.CompletionTokens != c.of ||
			strings.Join(tr.FinishReasons, ",") != c.reasons {
			t.Errorf("%v: %+v %v", c.data, tr.Usage, tr.FinishReasons)
		}
	}
	var none Trailer
	for _, d := range []string{`{"usage":null,"choices":[{"finish_reason": null}]}`, `{"usage":`,
		`{"usage":{"prompt_tokens":-1}}`,
		`{"choices":[{"index":1000000000,"finish_reason":"stop"}]}`,
		`{"choices":[{"index":-1,"finish_reason":"stop"}]}`} {
		none.Observe([]byte(d))
	}
	if none.Usage != nil || len(none.FinishReasons) > 0 {
		t.Errorf("got %+v", none)
	}
}
