package frontend

import (
	"io"
	"strings"
	"testing"
	"time"
)

// TestEndWithoutARecord holds that a stream whose response ends wrongly before anything was written still gets its real
// status, and one that is complete without a token is a stream without one.
func TestEndWithoutARecord(t *testing.T) {
	p := newPlay(step{err: io.EOF})
	p.trailer = `{"finish_reason":"length","prompt_tokens":3,"completion_tokens":5}`
	b := serve(t, playing(p), nil)
	a := b.do("POST", "/v1/chat/completions", chatStream)
	if typ, code, _, msg := errorOf(t, a.body); a.status != 502 || typ != "upstream_error" || code != "protocol" ||
		!strings.Contains(msg, "5 tokens") ||
		a.header.Get("Content-Type") != "application/json" || a.header.Get("Cache-Control") != "" {
		t.Errorf("claims tokens that did not come: %d %v %s", a.status, a.header, a.body)
	}
	b.untilValue(1, requests, "status", "502", "error_type", "protocol")

	b = serve(t, playing(newPlay(step{err: io.EOF})), nil)
	if a := b.do("POST", "/v1/chat/completions", chatStream); a.status != 200 ||
		!strings.HasSuffix(a.body, "data: [DONE]\n\n") || strings.Contains(a.body, `"error"`) {
		t.Errorf("complete without a token: %d %s", a.status, a.body)
	}
}

// TestTruncatedInMidStream holds that an answer which claims more tokens than came does not look complete, streamed or
// not.
func TestTruncatedInMidStream(t *testing.T) {
	for _, body := range []string{chatStream, chatBody} {
		p := newPlay(step{recs: []string{"a", "b"}}, step{err: io.EOF})
		p.trailer = `{"finish_reason":"length","prompt_tokens":3,"completion_tokens":5}`
		b := serve(t, playing(p), nil)
		a := b.do("POST", "/v1/chat/completions", body)
		if strings.Contains(a.body, `"finish_reason":"length"`) || !strings.Contains(a.body, `"code":"protocol"`) ||
			(body == chatBody) != (a.status == 502) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// TestEndMeetsKeepAlive holds that an end that comes just as a keep-alive is due is taken as the end.
func TestEndMeetsKeepAlive(t *testing.T) {
	for range 50 {
		p := newPlay(step{recs: []string{"a"}})
		b := serve(t, playing(p), func(c *Config) { c.KeepAlive = time.Millisecond })
		resp, _ := b.start(chatStream)
		time.Sleep(time.Millisecond) // about when the keeper wakes the stream
		p.steps <- step{err: io.EOF}
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
			t.Fatalf("%v %q", err, body)
		}
	}
}
