package loadgen

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// oracle is what an event holds, as encoding/json reads it into plain trees. Where an event says something in several
// places, which no server does, all are listed.
type oracle struct {
	contents, kinds, codes, saids []string
	tokens                        []int
	opened, done                  uint64
	length, last, failed          bool
}

// ask makes the oracle of an event, false when it is no JSON object.
func ask(p []byte, typed bool) (o oracle, ok bool) {
	var m map[string]any
	if json.Unmarshal(p, &m) != nil || m == nil {
		return o, false
	}
	add := func(list *[]string, v any) {
		if s, isText := v.(string); isText && s != "" {
			*list = append(*list, s)
		}
	}
	whole := func(v any) (int, bool) {
		n, isNum := v.(float64)
		return int(n), isNum && n >= 0 && n < 1<<40 && n == float64(int(n))
	}
	usage := func(v any, name string) {
		u, _ := v.(map[string]any)
		if n, is := whole(u[name]); is {
			o.tokens = append(o.tokens, n)
		}
	}
	failure := func(v any) {
		switch e := v.(type) {
		case nil:
			return
		case string:
			add(&o.saids, e)
		case map[string]any:
			add(&o.kinds, e["type"])
			add(&o.codes, e["code"])
			add(&o.saids, e["message"])
		}
		o.failed = true
	}
	reason := func(v any) bool {
		r, _ := v.(string)
		switch r {
		case "length", "max_tokens", "max_output_tokens":
			o.length = true
		case "abort", "error", "timeout", "cancelled", "canceled":
			o.failed = true
			o.kinds = append(o.kinds, "finish_reason_"+strings.Replace(r, "canceled", "cancelled", 1))
		}
		return r != ""
	}
	failure(m["error"])
	if m["object"] == "error" || m["type"] == "error" {
		o.failed = true
		if m["type"] != "error" {
			add(&o.kinds, m["type"])
		}
		add(&o.codes, m["code"])
		add(&o.saids, m["message"])
	}
	if !typed {
		usage(m["usage"], "completion_tokens")
		list, _ := m["choices"].([]any)
		for _, c := range list {
			choice, isObject := c.(map[string]any)
			if !isObject {
				continue
			}
			delta, _ := choice["delta"].(map[string]any)
			for _, v := range []any{delta["content"], delta["reasoning_content"], delta["reasoning"], choice["text"]} {
				add(&o.contents, v)
			}
			index, _ := whole(choice["index"])
			if _, is := whole(choice["index"]); !is {
				index = 0
			}
			o.opened |= 1 << min(index, 63)
			if reason(choice["finish_reason"]) {
				o.done |= 1 << min(index, 63)
			}
		}
		return o, true
	}
	usage(m["usage"], "output_tokens")
	var deltas []string
	add(&deltas, m["delta"])
	if d, isObject := m["delta"].(map[string]any); isObject {
		add(&deltas, d["text"])
		add(&deltas, d["thinking"])
		reason(d["stop_reason"])
	}
	response, _ := m["response"].(map[string]any)
	usage(response["usage"], "output_tokens")
	failure(response["error"])
	details, _ := response["incomplete_details"].(map[string]any)
	kind, _ := m["type"].(string)
	switch kind {
	case "response.output_text.delta", "response.reasoning_text.delta", "response.reasoning_summary_text.delta",
		"content_block_delta":
		o.contents = deltas
	case "response.completed", "message_stop":
		o.last = true
	case "response.incomplete":
		if reason(details["reason"]); o.length {
			o.last = true
		} else {
			o.failed, o.kinds = true, []string{"response_incomplete"}
			o.saids = nil
			if add(&o.saids, details["reason"]); m["object"] == "error" {
				add(&o.saids, m["message"])
			}
		}
	case "response.failed", "response.cancelled":
		o.failed = true
	}
	return o, true
}

var events = []string{
	`{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" abC"},"logprobs":null,"finish_reason":null}]}`,
	`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
	`{"choices":[{"delta":{"content":null}}]}`,
	`{"choices":[{"delta":{"content":"a\"b\\c\u00e9\n\\"}}]}`,
	` { "choices" : [ { "text" : "legacy" , "finish_reason" : "length" } ] } `,
	`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}`,
	`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":256,"total_tokens":261,"details":{"a":[1,2,{"b":"}"}]}}}`,
	`{"choices":[{"delta":{"reasoning_content":"think"}}]}`,
	`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"content\":\"no\"}"}}]}}]}`,
	`{"error":{"message":"a \"b\"","type":"upstream_error","param":null,"code":null}}`,
	`{"error":"text"}`, `{"error":null,"choices":[]}`, `{}`, `{"usage":{"completion_tokens":-3}}`,
	`{"usage":{"completion_tokens":2.5}}`, `{"usage":[1]}`,
	`{"choices":[{"index":1,"delta":{},"finish_reason":"abort"}],"usage":{"completion_tokens":2.56e2}}`,
	`{"choices":[{"index":70,"finish_reason":"l\u0065ngth"}]}`,
	`{"object":"error","message":"out of memory","type":"InternalServerError","param":null,"code":500}`,
	`{"object":"err\u006fr","code":"x"}`, `{"type":"error","message":"m"}`,
	`{"usage":{"completion_tokens":2000000000000}}`, `{"usage":{"completion_tokens":-0}}`,
	"{\"\\u0063hoices\":[{\"delta\":{\"content\":\"\xa7\"}}]}",
	`{"choices":{"delta":1}}`, `{"choices":[1,null,"x",[]]}`, `{"\u0063hoices":[{"delta":{"content":"escaped key"}}]}`,
}

// typedEvents are of the APIs whose events have a type.
var typedEvents = []string{
	`{"type":"response.created","response":{"id":"r","status":"in_progress","error":null,"incomplete_details":null,"usage":null}}`,
	`{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":" ab\"C","sequence_number":4}`,
	`{"type":"response.function_call_arguments.delta","delta":"{}"}`,
	`{"type":"response.completed","response":{"status":"completed","error":null,"usage":{"input_tokens":5,"output_tokens":12}}}`,
	`{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"},"usage":{"output_tokens":12}}}`,
	`{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}`,
	`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"gone"}}}`,
	`{"type":"error","code":"ERR","message":"m","param":null,"sequence_number":1}`,
	`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":9,"output_tokens":1},"stop_reason":null}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
	`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"text\":1}"}}`,
	`{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":15}}`,
	`{"type":"message_stop"}`, `{"type":"ping"}`,
	`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
}

func TestScanAgreesWithJSON(t *testing.T) {
	for _, ev := range append(events, typedEvents...) {
		compare(t, []byte(ev), false)
		compare(t, []byte(ev), true)
	}
}

func scanOf(typed bool) func([]byte) (chunk, error) {
	if typed {
		return scanTyped
	}
	return scanChoices
}

func compare(t *testing.T, p []byte, typed bool) {
	t.Helper()
	want, ok := ask(p, typed)
	c, err := scanOf(typed)(p)
	if !ok {
		return // what is no JSON object may be read or refused, but not panic
	}
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	one := func(what string, got []byte, want []string) {
		if s := string(plain(got)); len(want) == 0 && s != "" || len(want) > 0 && !slices.Contains(want, s) {
			t.Fatalf("%s: %s is %q, want one of %q", p, what, s, want)
		}
	}
	one("content", c.content, want.contents)
	if c.failed {
		one("kind", c.kind, want.kinds)
		one("code", c.code, want.codes)
		one("said", c.said, want.saids)
	}
	if len(want.tokens) == 0 && c.tokens != -1 || len(want.tokens) > 0 && !slices.Contains(want.tokens, c.tokens) {
		t.Fatalf("%s: %d tokens, want one of %d", p, c.tokens, want.tokens)
	}
	if c.opened != want.opened || c.done != want.done || c.length != want.length || c.last != want.last ||
		c.failed != want.failed {
		t.Fatalf("%s: got %+v, want %+v", p, c, want)
	}
}

func TestScanRefuses(t *testing.T) {
	for _, p := range []string{"", "x", "[]", `"text"`, `{"a"`, `{"a":}`, `{"a":1`, `{"a":1}x`, `{"a":nul}`, `{"a":"`,
		`{"a":{`, `{,}`, strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)} {
		for _, typed := range []bool{false, true} {
			if _, err := scanOf(typed)([]byte(p)); err == nil {
				t.Errorf("%q was read", p)
			}
		}
	}
}

func TestErrorsOfBodies(t *testing.T) {
	for body, want := range map[string][2]string{
		`{"error":{"type":"overloaded_error","message":"wait"}}`: {"overloaded_error", "wait"},
		`{"error":{"code":"rate_limit"}}`:                        {"rate_limit", `{"code":"rate_limit"}`},
		`{"error":{"code":429,"message":"m"}}`:                   {"", "m"}, `{"error":"x"}`: {"", "x"},
		`<html>`: {"", "<html>"}, ``: {},
		`{"detail":"Not Found"}`: {"", "Not Found"},
		`{"object":"error","message":"big","type":"BadRequestError","code":400}`: {"BadRequestError", "big"},
		`{"type":"error","error":{"type":"api_error","message":"down"}}`:         {"api_error", "down"},
		`{"type":"error","code":"E","message":"m"}`:                              {"E", "m"},
		`{"error":null,"message":"m"}`:                                           {"", "m"}, `[1]`: {"", "[1]"},
	} {
		if kind, said := errorOf([]byte(body)); kind != want[0] || said != want[1] {
			t.Errorf("%s: %q %q, want %q", body, kind, said, want)
		}
	}
}

// duplicates tells whether a key stands twice in an object: encoding/json takes the last, scanChunk the first that is
// not empty, and no server sends it.
func duplicates(p []byte) bool {
	dec := json.NewDecoder(strings.NewReader(string(p)))
	type level struct {
		object bool
		key    bool
		seen   map[string]bool
	}
	var stack []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		top := len(stack) - 1
		if d, isDelim := tok.(json.Delim); isDelim {
			switch d {
			case '{', '[':
				if top >= 0 {
					stack[top].key = true
				}
				stack = append(stack, level{object: d == '{', key: true, seen: map[string]bool{}})
			default:
				stack = stack[:top]
			}
			continue
		}
		if top < 0 {
			continue
		}
		if l := &stack[top]; l.object && l.key {
			k := tok.(string)
			if l.seen[k] {
				return true
			}
			l.seen[k], l.key = true, false
		} else {
			l.key = true
		}
	}
}

func FuzzScanChunk(f *testing.F) {
	for _, ev := range append(events, typedEvents...) {
		f.Add([]byte(ev))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if duplicates(p) || strings.Count(string(p), "{")+strings.Count(string(p), "[") > maxDepth {
			_, _ = scanChoices(p)
			_, _ = scanTyped(p)
			return
		}
		compare(t, p, false)
		compare(t, p, true)
	})
}

// TestScanningAllocatesNothing: events that no shape fits, as with a sequence number in each, are scanned one by one.
func TestScanningAllocatesNothing(t *testing.T) {
	for i, ev := range []string{events[0], typedEvents[1], typedEvents[9]} {
		p := []byte(ev)
		if n := testing.AllocsPerRun(100, func() { _, _ = scanOf(i > 0)(p) }); n != 0 {
			t.Errorf("%v allocations for %s", n, ev)
		}
	}
}
