package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// errorOf reads the error object that a must be.
func errorOf(t *testing.T, body string) (typ, code, param, message string) {
	t.Helper()
	var v struct {
		Error *struct {
			Message, Type string
			Param, Code   *string
		}
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil || v.Error == nil || v.Error.Message == "" {
		t.Fatalf("no error object: %q (%v)", body, err)
	}
	if v.Error.Code != nil {
		code = *v.Error.Code
	}
	if v.Error.Param != nil {
		param = *v.Error.Param
	}
	return v.Error.Type, code, param, v.Error.Message
}

// ends is the table of the contracts.
var ends = []struct {
	err        error
	status     int
	typ, label string
	retryAfter bool
}{
	{&EndError{End: EndFailed, Code: CodeInternal, Text: "because"}, 500, "server_error", "internal", false},
	{&EndError{End: EndFailed, Text: "because"}, 500, "server_error", "internal", false},
	{&EndError{End: EndFailed, Code: CodeValidation, Text: "because"}, 400, "invalid_request_error", "validation",
		false},
	{&EndError{End: EndFailed, Code: CodeNotFound, Text: "because"}, 404, "invalid_request_error", "not_found", false},
	{&EndError{End: EndRefused, Code: CodeBusy, Text: "because"}, 429, "overloaded_error", "overload", true},
	{&EndError{End: EndRefused, Code: CodeDraining, Text: "because"}, 503, "service_unavailable", "unavailable", true},
	{&EndError{End: EndRefused, Code: CodeNoWorker, Text: "because"}, 503, "service_unavailable", "unavailable", true},
	{&EndError{End: EndRefused, Code: CodeUnsupported, Text: "because"}, 503, "service_unavailable", "unavailable",
		true},
	{&EndError{End: EndRefused, Code: CodeBadRequest, Text: "because"}, 400, "invalid_request_error", "validation",
		false},
	{&EndError{End: EndRefused, Code: CodeTooLarge, Text: "because"}, 413, "invalid_request_error", "validation",
		false},
	{&EndError{End: EndDeadline, Text: "because"}, 504, "timeout", "timeout", false},
	{context.DeadlineExceeded, 504, "timeout", "timeout", false},
	{&EndError{End: EndLost, Text: "because", Worker: "w-3"}, 502, "upstream_error", "lost", false},
	{&EndError{End: EndProtocol, Text: "because"}, 502, "upstream_error", "protocol", false},
	{&EndError{End: EndKilled, Text: "because"}, 503, "service_unavailable", "unavailable", true},
	{&EndError{End: EndStopped, Text: "because"}, 503, "service_unavailable", "unavailable", true},
	{errBoom, 500, "server_error", "internal", false},
}

func TestEndBeforeTheFirstRecordKeepsItsStatus(t *testing.T) {
	for _, c := range ends {
		for _, body := range []string{chatBody, chatStream} {
			t.Run(fmt.Sprintf("%v/stream=%v", c.err, body == chatStream), func(t *testing.T) {
				b := serve(t, failing(c.err), nil)
				a := b.do("POST", "/v1/chat/completions", body)
				typ, code, _, msg := errorOf(t, a.body)
				if a.status != c.status || typ != c.typ || code != c.label ||
					a.header.Get("Content-Type") != "application/json" {
					t.Errorf("%d %s, want %d %s %s", a.status, a.body, c.status, c.typ, c.label)
				}
				if got := a.header.Get("Retry-After") != ""; got != c.retryAfter {
					t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
				}
				if end, ok := c.err.(*EndError); ok {
					if !strings.Contains(msg, "because") || a.header.Get("X-Laneway-Worker") != end.Worker {
						t.Errorf("message %q, headers %v", msg, a.header)
					}
				} else if strings.Contains(msg, "boom") {
					t.Errorf("an inner error got out: %q", msg)
				}
				b.untilValue(1, requests, "status", fmt.Sprint(c.status), "error_type", c.label)
				b.untilValue(0, "laneway_frontend_inflight_requests")
				b.untilValue(0, "laneway_frontend_disconnected_clients_total")
			})
		}
	}
}

func TestEndInMidStream(t *testing.T) {
	for _, c := range ends {
		t.Run(c.err.Error(), func(t *testing.T) {
			p := newPlay(step{recs: []string{"a"}}, step{err: c.err})
			b := serve(t, playing(p), nil)
			a := b.do("POST", "/v1/chat/completions", chatStream)
			events := strings.Split(strings.TrimSuffix(a.body, "\n\n"), "\n\n")
			if a.status != 200 || len(events) != 4 || events[3] != "data: [DONE]" ||
				!strings.Contains(events[1], `"content":"a"`) {
				t.Fatalf("%d %q", a.status, a.body)
			}
			typ, code, _, _ := errorOf(t, strings.TrimPrefix(events[2], "data: "))
			if typ != c.typ || code != c.label {
				t.Errorf("%s, want %s %s", events[2], c.typ, c.label)
			}
			if strings.Contains(a.body, `"finish_reason":"`) {
				t.Error("a truncated answer looks complete")
			}
			p.waitFor(t, "closed", p.shut)
			b.untilValue(1, requests, "status", fmt.Sprint(c.status), "error_type", c.label, "request_type", "stream")

			// Not streamed, the status line has not gone out yet.
			b = serve(t, playing(newPlay(step{recs: []string{"a"}}, step{err: c.err})), nil)
			if a := b.do("POST", "/v1/chat/completions", chatBody); a.status != c.status {
				t.Errorf("not streamed: %d %s, want %d", a.status, a.body, c.status)
			}
		})
	}
}

func TestUnreadableTrailer(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}}, step{err: io.EOF})
	p.trailer = `{"finish_reason":"because"}`
	a := serve(t, playing(p), nil).do("POST", "/v1/chat/completions", chatStream)
	if !strings.Contains(a.body, `"code":"protocol"`) || !strings.HasSuffix(a.body, "data: [DONE]\n\n") ||
		strings.Contains(a.body, `"finish_reason":"`) {
		t.Errorf("%s", a.body)
	}
}

func TestBadRequests(t *testing.T) {
	b := serve(t, &scripted{open: func(context.Context, Call) (Stream, error) {
		t.Error("a bad request reached the backend")
		return nil, errBoom
	}}, func(c *Config) { c.MaxBodyBytes = 1000 })
	big := `{"model":"m","prompt":"` + strings.Repeat("x", 1000) + `"}`
	for _, c := range []struct {
		method, path, body string
		status             int
		code, param, words string
	}{
		{"POST", "/v1/chat/completions", `{`, 400, "invalid_json", "", "not valid JSON"},
		{"POST", "/v1/chat/completions", ``, 400, "invalid_json", "", "not valid JSON"},
		{"POST", "/v1/chat/completions", `{"messages":[]}`, 400, "missing_required_parameter", "model",
			"model is missing"},
		{"POST", "/v1/chat/completions", `{"model":"m"}`, 400, "missing_required_parameter", "messages",
			"messages is missing"},
		{"POST", "/v1/completions", `{"model":"m"}`, 400, "missing_required_parameter", "prompt", "prompt is missing"},
		{"POST", "/v1/completions", `{"model":"m","prompt":"x","n":2}`, 400, "unsupported_value", "n", "n is 2"},
		{"POST", "/v1/completions", `{"model":"gpt","prompt":"x"}`, 404, "model_not_found", "model", `model "gpt"`},
		{"POST", "/v1/completions", big, 413, "body_too_large", "", "larger than 1000 bytes"},
		{"GET", "/v1/chat/completions", ``, 405, "method_not_allowed", "", "expected POST"},
		{"PUT", "/v1/completions", ``, 405, "method_not_allowed", "", "expected POST"},
		{"DELETE", "/v1/models", ``, 405, "method_not_allowed", "", "expected GET"},
		{"POST", "/v1/embeddings", `{}`, 404, "unknown_url", "", "/v1/embeddings"},
		{"GET", "/", ``, 404, "unknown_url", "", "/v1/models"},
		{"GET", "/v1/modelsx", ``, 404, "unknown_url", "", "/v1/modelsx"},
	} {
		a := b.do(c.method, c.path, c.body)
		typ, code, param, msg := errorOf(t, a.body)
		if a.status != c.status || typ != "invalid_request_error" || code != c.code || param != c.param ||
			!strings.Contains(msg, c.words) {
			t.Errorf("%s %s %.40s: %d %s", c.method, c.path, c.body, a.status, a.body)
		}
		if a.header.Get("X-Request-Id") == "" || a.status == 405 && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: headers %v", c.method, c.path, a.header)
		}
	}
	// Without a Content-Length the limit counts what comes.
	r, _ := http.NewRequest("POST", b.url+"/v1/completions", io.MultiReader(strings.NewReader(big)))
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("chunked body: %d", resp.StatusCode)
	}
}

func TestSlowBody(t *testing.T) {
	b := serve(t, playing(newPlay()), func(c *Config) { c.BodyTimeout = 30 * time.Millisecond })
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	p, _ := io.ReadAll(conn)
	if s := string(p); !strings.HasPrefix(s, "HTTP/1.1 408 ") || !strings.Contains(s, "body_timeout") {
		t.Errorf("%q", s)
	}
}

func TestNoWorkerYet(t *testing.T) {
	b := serve(t, &scripted{models: []string{}}, nil)
	a := b.do("POST", "/v1/chat/completions", chatBody)
	if _, code, _, _ := errorOf(t, a.body); a.status != 503 || code != "unavailable" ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestOverloadStatusAndAdmission(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}})
	b := serve(t, playing(p), func(c *Config) { c.MaxOpenRequests, c.OverloadStatus = 1, 529 })
	resp, err := b.client.Post(b.url+"/v1/chat/completions", "", strings.NewReader(chatStream))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a := b.do("POST", "/v1/chat/completions", chatBody)
	if typ, _, _, _ := errorOf(t, a.body); a.status != 529 || typ != "overloaded_error" ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	p.steps <- step{err: io.EOF}
	io.Copy(io.Discard, resp.Body)
	b.untilOpen(0)
	b.backend.open = func(context.Context, Call) (Stream, error) { return newPlay(step{err: io.EOF}), nil }
	if a := b.do("POST", "/v1/chat/completions", chatBody); a.status != 200 {
		t.Errorf("the place did not come back: %d %s", a.status, a.body)
	}
}

func TestReplyTooLarge(t *testing.T) {
	p := newPlay(step{recs: []string{strings.Repeat("x", 600)}}, step{recs: []string{strings.Repeat("x", 600)}})
	b := serve(t, playing(p), func(c *Config) { c.MaxReplyBytes = 1000 })
	a := b.do("POST", "/v1/chat/completions", chatBody)
	if _, _, _, msg := errorOf(t, a.body); a.status != 500 || !strings.Contains(msg, "too large") {
		t.Errorf("%d %s", a.status, a.body)
	}
	p.waitFor(t, "killed", p.killed)
}

func TestConfigComplaints(t *testing.T) {
	_, err := New(Config{OverloadStatus: 418, MaxOpenRequests: -1, BodyTimeout: -1})
	for _, want := range []string{"Backend is nil", "OverloadStatus is 418", "MaxOpenRequests is -1",
		"BodyTimeout is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
