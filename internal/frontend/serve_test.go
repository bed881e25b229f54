package frontend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/serving/mockproto"
)

const requests = "laneway_frontend_requests_total"

func TestStreamsAreByteExact(t *testing.T) {
	const chat = `data: {"id":"chatcmpl-own","object":"chat.completion.chunk","created":0,"model":"m",`
	const compl = `data: {"id":"cmpl-own","object":"text_completion","created":0,"model":"m",`
	for _, c := range []struct{ name, path, body, want string }{
		{"chat", "/v1/chat/completions", chatStream,
			chat + `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n" +
				chat + `"choices":[{"index":0,"delta":{"content":" on\"e"},"finish_reason":null}]}` + "\n\n" +
				chat + `"choices":[{"index":0,"delta":{"content":" tw\u2028o"},"finish_reason":null}]}` + "\n\n" +
				chat + `"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\n" +
				"data: [DONE]\n\n"},
		{"chat with usage", "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,"stream_options":{"include_usage":true}}`,
			chat + `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}` + "\n\n" +
				chat + `"choices":[{"index":0,"delta":{"content":" on\"e"},"finish_reason":null}],"usage":null}` +
				"\n\n" +
				chat + `"choices":[{"index":0,"delta":{"content":" tw\u2028o"},"finish_reason":null}],"usage":null}` +
				"\n\n" +
				chat + `"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null}` + "\n\n" +
				chat + `"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}` + "\n\n" +
				"data: [DONE]\n\n"},
		{"completions", "/v1/completions", `{"model":"m","prompt":"a","stream":true}`,
			compl + `"choices":[{"index":0,"text":" on\"e","logprobs":null,"finish_reason":null}]}` + "\n\n" +
				compl + `"choices":[{"index":0,"text":" tw\u2028o","logprobs":null,"finish_reason":null}]}` + "\n\n" +
				compl + `"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]}` + "\n\n" +
				"data: [DONE]\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlay(step{recs: []string{` on"e`}}, step{recs: []string{" tw\u2028o"}}, step{err: io.EOF})
			b := serve(t, playing(p), nil)
			a := b.do("POST", c.path, c.body, "X-Request-Id", "rid")
			a.body = strings.ReplaceAll(a.body, b.backend.lastCall().ID, "own")
			if a.body != c.want {
				t.Errorf("got\n%s\nwant\n%s", a.body, c.want)
			}
			for k, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache",
				"X-Accel-Buffering": "no",
				"X-Request-Id":      "rid", "X-Laneway-Worker": "w-7", "X-Laneway-Process": "mock-2",
				"X-Laneway-Lane": "tcp/0", "Content-Length": ""} {
				if got := a.header.Get(k); got != want {
					t.Errorf("%s is %q, want %q", k, got, want)
				}
			}
			p.waitFor(t, "closed", p.shut)
			b.untilValue(1, requests, "model", "m", "request_type", "stream", "status", "200", "error_type", "")
			for name, want := range map[string]float64{"laneway_frontend_output_tokens_total": 2,
				"laneway_frontend_time_to_first_token_seconds": 1,
				"laneway_frontend_inter_token_latency_seconds": 1, "laneway_frontend_request_duration_seconds": 1,
				"laneway_frontend_inflight_requests":          0,
				"laneway_frontend_disconnected_clients_total": 0} {
				b.untilValue(want, name)
			}
		})
	}
}

func TestRepliesAreByteExact(t *testing.T) {
	for _, c := range []struct{ path, body, want string }{
		{"/v1/chat/completions", chatBody,
			`{"id":"chatcmpl-own","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":" on\"e two","refusal":null},"logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`},
		{"/v1/completions", `{"model":"m","prompt":["a b"]}`,
			`{"id":"cmpl-own","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":" on\"e two","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`},
	} {
		b := serve(t, playing(newPlay(step{recs: []string{` on"e`}}, step{recs: []string{" two"}}, step{err: io.EOF})),
			nil)
		a := b.do("POST", c.path, c.body, "X-Request-Id", "rid")
		a.body = strings.ReplaceAll(a.body, b.backend.lastCall().ID, "own")
		if a.status != 200 || a.body != c.want || a.header.Get("Content-Type") != "application/json" ||
			a.header.Get("X-Laneway-Worker") != "w-7" {
			t.Errorf("%s: %d %v\n got %s\nwant %s", c.path, a.status, a.header, a.body, c.want)
		}
		b.untilValue(1, requests, "request_type", "unary", "status", "200")
	}
}

func TestWhatTheWorkerGets(t *testing.T) {
	b := serve(t, &scripted{}, func(c *Config) { c.FirstTokenTimeout, c.InactivityTimeout = time.Minute, time.Second })
	b.backend.open = func(context.Context, Call) (Stream, error) { return newPlay(step{err: io.EOF}).stream(), nil }
	b.do("POST", "/v1/chat/completions",
		`{"model":"m","messages":[{"role":"user","content":"a b c"},{"role":"user","content":"d"}],"max_tokens":9,"stop":["x"]}`, "X-Request-Id", "rid:1")
	c := b.backend.lastCall()
	got, err := mockproto.DecodeRequest(c.Payload)
	want := mockproto.Request{Version: 1, ID: "rid:1", Model: "m", Kind: "chat", PromptTokens: 4, MaxTokens: 9,
		Stop: []string{"x"}}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("payload %+v (%v), want %+v", got, err, want)
	}
	if c.ClientID != "rid:1" || len(c.ID) < 16 || c.Model != "m" || c.FirstRecordTimeout != time.Minute ||
		c.InactivityTimeout != time.Second {
		t.Errorf("call %+v", c)
	}
	seen := map[string]bool{}
	for _, bad := range []string{"", "a b", "ü", strings.Repeat("x", 129), `a"b`} {
		a := b.do("POST", "/v1/completions", `{"model":"m","prompt":[1,2]}`, "X-Request-Id", bad)
		id := a.header.Get("X-Request-Id")
		if id == bad || len(id) < 16 || seen[id] || b.backend.lastCall().ID != id ||
			b.backend.lastCall().ClientID != "" {
			t.Errorf("request id %q became %q (call %q)", bad, id, b.backend.lastCall().ID)
		}
		seen[id] = true
	}
}

// TestReadyRecordsGoOutInOneWrite looks at the HTTP chunks: the server makes one of each write that is flushed.
func TestReadyRecordsGoOutInOneWrite(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}})
	b := serve(t, playing(p), nil)
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(chatStream),
		chatStream)
	r := bufio.NewReader(conn)
	for { // headers
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\r\n" {
			break
		}
	}
	chunk := func() string {
		t.Helper()
		var n int
		if _, err := fmt.Fscanf(r, "%x\r\n", &n); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, n+2)
		if _, err := io.ReadFull(r, p); err != nil {
			t.Fatal(err)
		}
		return string(p[:n])
	}
	events := func(s string) int { return strings.Count(s, "data: ") }
	if got := chunk(); events(got) != 2 || !strings.Contains(got, `"content":"a"`) {
		t.Errorf("the first record did not go out at once with the role: %q", got)
	}
	p.steps <- step{recs: []string{"b"}}
	if got := chunk(); events(got) != 1 || !strings.Contains(got, `"content":"b"`) {
		t.Errorf("a single record: %q", got)
	}
	p.steps <- step{recs: strings.Split("0123456789", "")}
	if got := chunk(); events(got) != 10 {
		t.Errorf("ten ready records are not one write: %q", got)
	}
	p.steps <- step{recs: []string{"g"}, err: io.EOF}
	if got := chunk(); events(got) != 3 || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("last record, finish and done: %q", got)
	}
	if got := chunk(); got != "" {
		t.Errorf("after done: %q", got)
	}
}

func TestHugeBatch(t *testing.T) {
	recs := make([]string, 3000)
	for i := range recs {
		recs[i] = fmt.Sprint(" ", i)
	}
	b := serve(t, playing(newPlay(step{recs: recs}, step{err: io.EOF})), nil)
	a := b.do("POST", "/v1/chat/completions", chatStream)
	for i := range recs {
		if !strings.Contains(a.body, fmt.Sprintf(`"content":" %d"`, i)) {
			t.Fatalf("record %d is missing", i)
		}
	}
	if n := strings.Count(a.body, "data: "); n != 3003 {
		t.Errorf("%d events, want 3003", n)
	}
}

func TestKeepAliveComments(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}})
	b := serve(t, playing(p), func(c *Config) { c.KeepAlive = 20 * time.Millisecond })
	resp, err := b.client.Post(b.url+"/v1/chat/completions", "application/json", strings.NewReader(chatStream))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	comments, rest := 0, ""
	for sc.Scan() {
		if sc.Text() == ": keep-alive" {
			if comments++; comments == 3 {
				p.steps <- step{recs: []string{"b"}}
				p.steps <- step{err: io.EOF}
			}
			continue
		}
		rest += sc.Text() + "\n"
	}
	if comments < 3 || strings.Count(rest, "data: ") != 5 || !strings.HasSuffix(rest, "data: [DONE]\n\n\n") &&
		!strings.HasSuffix(rest, "data: [DONE]\n\n") {
		t.Errorf("%d comments, events %q", comments, rest)
	}
	select {
	case <-p.killed:
		t.Error("a keep-alive killed the response")
	default:
	}
}

func TestModels(t *testing.T) {
	b := serve(t, &scripted{models: []string{"a", "org/b"}}, nil)
	for path, want := range map[string]string{
		"/v1/models":       `{"object":"list","data":[{"id":"a","object":"model","created":0,"owned_by":"laneway"},{"id":"org/b","object":"model","created":0,"owned_by":"laneway"}]}`,
		"/v1/models/org/b": `{"id":"org/b","object":"model","created":0,"owned_by":"laneway"}`,
	} {
		if a := b.do("GET", path, ""); a.status != 200 || a.body != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := b.do("GET", "/v1/models/x", ""); a.status != 404 || !strings.Contains(a.body, "model_not_found") {
		t.Errorf("unknown: %d %s", a.status, a.body)
	}
}

// TestConnectionIsUsedAgain holds that a finished stream leaves its connection fit for the next request, long after its
// write deadline.
func TestConnectionIsUsedAgain(t *testing.T) {
	b := serve(t, &scripted{}, func(c *Config) { c.WriteTimeout = writeTime / 2 })
	release := make(chan struct{})
	b.backend.open = func(_ context.Context, c Call) (Stream, error) {
		if c.ClientID == "slow" {
			<-release
		}
		return newPlay(step{recs: []string{"a"}}, step{err: io.EOF}).stream(), nil
	}
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	r := bufio.NewReader(conn)
	for _, c := range []struct{ id, body string }{{"one", chatStream}, {"slow", chatBody}, {"three", chatStream}} {
		if c.id == "slow" {
			time.AfterFunc(writeTime/2+writeTime/20, func() { close(release) }) // longer than a write may take
		}
		req, _ := http.NewRequest("POST", "http://x/v1/chat/completions", strings.NewReader(c.body))
		req.Header.Set("X-Request-Id", c.id)
		if err := req.Write(conn); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			t.Fatalf("%s: %v", c.id, err)
		}
		if dump, err := httputil.DumpResponse(resp, true); err != nil || resp.StatusCode != 200 ||
			resp.Header.Get("X-Request-Id") != c.id {
			t.Errorf("%s: %v\n%s", c.id, err, dump)
		}
	}
}
