package loadgen

import (
	"encoding/json"
	"strings"
	"testing"
)

// oracle reads an event with encoding/json into plain trees, and picks from them what scanChunk must find.
func oracle(p []byte) (content string, length bool, tokens int, failed bool, ok bool) {
	tokens = -1
	var m map[string]any
	if json.Unmarshal(p, &m) != nil || m == nil {
		return "", false, -1, false, false
	}
	if u, isMap := m["usage"].(map[string]any); isMap {
		if n, isNum := u["completion_tokens"].(float64); isNum && n >= 0 && n < 1<<40 && n == float64(int(n)) {
			tokens = int(n)
		}
	}
	failed = m["error"] != nil
	if list, isList := m["choices"].([]any); isList {
		for _, c := range list {
			choice, _ := c.(map[string]any)
			delta, _ := choice["delta"].(map[string]any)
			for _, v := range []any{delta["content"], delta["reasoning_content"], delta["reasoning"], choice["text"]} {
				if s, isText := v.(string); isText && content == "" {
					content = s
				}
			}
			if choice["finish_reason"] == "length" {
				length = true
			}
		}
	}
	return content, length, tokens, failed, true
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
	`{"error":"text"}`, `{"error":null,"choices":[]}`, `{}`, `{"usage":{"completion_tokens":-3}}`, `{"usage":{"completion_tokens":2.5}}`, `{"usage":[1]}`,
	`{"choices":{"delta":1}}`, `{"choices":[1,null,"x",[]]}`, `{"\u0063hoices":[{"delta":{"content":"escaped key"}}]}`,
}

func TestScanChunkAgreesWithJSON(t *testing.T) {
	for _, ev := range events {
		compare(t, []byte(ev))
	}
}

func compare(t *testing.T, p []byte) {
	t.Helper()
	content, length, tokens, failed, ok := oracle(p)
	c, err := scanChunk(p)
	if !ok {
		return // what is no JSON object may be read or refused, but not panic
	}
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	got := string(c.content)
	if strings.Contains(got, `\`) {
		got = string(unescape(c.content))
	}
	if got != content || c.length != length || c.tokens != tokens || c.failed != failed {
		t.Fatalf("%s: got %q %v %d %v, want %q %v %d %v", p, got, c.length, c.tokens, c.failed, content, length, tokens, failed)
	}
}

func TestScanChunkRefuses(t *testing.T) {
	for _, p := range []string{"", "x", "[]", `"text"`, `{"a"`, `{"a":}`, `{"a":1`, `{"a":1}x`, `{"a":nul}`, `{"a":"`, `{"a":{`, `{,}`, strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)} {
		if _, err := scanChunk([]byte(p)); err == nil {
			t.Errorf("%q was read", p)
		}
	}
}

func TestErrorTypes(t *testing.T) {
	c, err := scanChunk([]byte(events[9]))
	if err != nil || string(c.errorType) != "upstream_error" {
		t.Errorf("%q %v", c.errorType, err)
	}
	for body, want := range map[string]string{
		`{"error":{"type":"overloaded_error"}}`: "overloaded_error", `{"error":{"code":"rate_limit"}}`: "rate_limit", `{"error":{"code":429}}`: "http_429",
		`{"error":"x"}`: "http_429", `<html>`: "http_429", ``: "http_429",
	} {
		if got := errorType([]byte(body), 429); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

// duplicates tells whether a key stands twice in an object: encoding/json takes the last, scanChunk the first that is not empty, and no server sends it.
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
	for _, ev := range events {
		f.Add([]byte(ev))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if duplicates(p) || strings.Count(string(p), "{")+strings.Count(string(p), "[") > maxDepth {
			_, _ = scanChunk(p)
			return
		}
		compare(t, p)
	})
}
