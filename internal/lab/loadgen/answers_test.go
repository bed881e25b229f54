package loadgen

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// typed sends an event whose name is its type, as responses and messages do.
func (c *call) typed(kind, rest string) {
	fmt.Fprintf(c.w, "event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, rest)
	c.w.(http.Flusher).Flush()
}

// begin sends the head of a stream that nobody verifies.
func (c *call) begin() {
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.WriteHeader(200)
}

// answerCases are answers of each API: what makes one complete, and what does not, though its status is 200.
var answerCases = []struct {
	path, name string
	script     func(c *call)
	end, kind  string
	said       string
}{
	{"/v1/chat/completions", "complete", func(c *call) { c.begin(); c.text("a"); c.finish(1) }, report.EndComplete, "",
		""},
	{"/v1/chat/completions", "event named error with JSON", func(c *call) {
		c.begin()
		c.text("a")
		fmt.Fprint(c.w, "event: error\ndata: {\"message\":\"out of memory\",\"type\":\"engine_error\"}\n\n")
		c.finish(1)
	}, report.EndFailed, "engine_error", "out of memory"},
	{"/v1/chat/completions", "event named error with a text", func(c *call) {
		c.begin()
		fmt.Fprint(c.w, "event: error\ndata: backend gone\n\n")
		c.finish(1)
	}, report.EndFailed, "failed", "backend gone"},
	{"/v1/chat/completions", "event named error without data",
		func(c *call) { c.begin(); fmt.Fprint(c.w, "event: error\n\n"); c.finish(1) }, report.EndFailed, "failed", ""},
	{"/v1/chat/completions", "object error", func(c *call) {
		c.begin()
		c.text("a")
		c.data(`{"object":"error","message":"too \u0022long\u0022","type":"BadRequestError","param":null,"code":400}`)
		c.data("[DONE]")
	}, report.EndFailed, "BadRequestError", `too "long"`},
	{"/v1/chat/completions", "error member", func(c *call) {
		c.begin()
		c.data(`{"error":{"message":"gone","type":null,"code":"lost"}}`)
		c.finish(1)
	}, report.EndFailed, "lost", "gone"},
	{"/v1/chat/completions", "error member, then a reset", func(c *call) {
		c.begin()
		c.text("a")
		c.data(`{"error":{"message":"gone","type":"lost"}}`)
		panic(http.ErrAbortHandler)
	}, report.EndFailed, "lost", "gone"},
	{"/v1/chat/completions", "event named error, then what is no JSON", func(c *call) {
		c.begin()
		fmt.Fprint(c.w, "event: error\ndata: {\"message\":\"gone\",\"type\":\"lost\"}\n\ndata: Traceback\n\n")
	}, report.EndFailed, "lost", "gone"},
	{"/v1/chat/completions", "a type of any length", func(c *call) {
		c.begin()
		c.data(`{"error":{"message":"gone","type":"` + strings.Repeat("t", 1000) + `"}}`)
		c.data("[DONE]")
	}, report.EndFailed, strings.Repeat("t", 100), "gone"},
	{"/v1/chat/completions", "no finish_reason", func(c *call) {
		c.begin()
		c.text("a")
		c.data(`{"choices":[],"usage":{"completion_tokens":1}}`)
		c.data("[DONE]")
	}, report.EndTruncated, "no_finish_reason", ""},
	{"/v1/chat/completions", "no choice at all",
		func(c *call) { c.begin(); c.data(`{"usage":{"completion_tokens":0}}`); c.data("[DONE]") }, report.EndTruncated,
		"no_finish_reason", ""},
	{"/v1/chat/completions", "one of two choices has no finish_reason", func(c *call) {
		c.begin()
		c.data(`{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":null}]}`)
		c.text("a")
		c.finish(2)
	}, report.EndTruncated, "no_finish_reason", ""},
	{"/v1/chat/completions", "abort", func(c *call) {
		c.begin()
		c.text("a")
		c.data(`{"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`)
		c.data("[DONE]")
	}, report.EndFailed, "finish_reason_abort", ""},
	{"/v1/completions", "error as finish_reason", func(c *call) {
		c.begin()
		c.data(`{"choices":[{"index":0,"text":"a","finish_reason":"error"}]}`)
		c.data("[DONE]")
	}, report.EndFailed, "finish_reason_error", ""},
	{"/v1/completions", "complete", func(c *call) {
		c.begin()
		c.data(`{"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}`)
		c.data(`{"choices":[],"usage":{"completion_tokens":1}}`)
		c.data("[DONE]")
	}, report.EndComplete, "", ""},
	{"/v1/responses", "complete", func(c *call) {
		c.begin()
		c.typed("response.created", `,"response":{"error":null,"usage":null}`)
		c.typed("response.output_text.delta", `,"delta":"a","sequence_number":4`)
		c.typed("response.completed", `,"response":{"status":"completed","usage":{"output_tokens":1}}`)
	}, report.EndComplete, "", ""},
	{"/v1/responses", "ended by the limit that was asked for", func(c *call) {
		c.begin()
		c.typed("response.output_text.delta", `,"delta":"a"`)
		c.typed("response.incomplete",
			`,"response":{"incomplete_details":{"reason":"max_output_tokens"},"usage":{"output_tokens":1}}`)
	}, report.EndComplete, "", ""},
	{"/v1/responses", "incomplete", func(c *call) {
		c.begin()
		c.typed("response.output_text.delta", `,"delta":"a"`)
		c.typed("response.incomplete", `,"response":{"incomplete_details":{"reason":"content_filter"}}`)
	}, report.EndFailed, "response_incomplete", "content_filter"},
	{"/v1/responses", "[DONE] alone",
		func(c *call) { c.begin(); c.typed("response.output_text.delta", `,"delta":"a"`); c.data("[DONE]") },
		report.EndTruncated, "truncated", ""},
	{"/v1/responses", "failed", func(c *call) {
		c.begin()
		c.typed("response.failed", `,"response":{"error":{"code":"server_error","message":"gone"}}`)
	}, report.EndFailed, "server_error", "gone"},
	{"/v1/responses", "error", func(c *call) { c.begin(); c.typed("error", `,"code":"E1","message":"m","param":null`) },
		report.EndFailed, "E1", "m"},
	{"/v1/messages", "complete", func(c *call) {
		c.begin()
		c.typed("message_start", `,"message":{"usage":{"output_tokens":1}}`)
		c.typed("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"a"}`)
		c.typed("message_delta", `,"delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":1}`)
		c.typed("message_stop", "")
	}, report.EndComplete, "", ""},
	{"/v1/messages", "no message_stop", func(c *call) {
		c.begin()
		c.typed("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"a"}`)
		c.typed("message_delta", `,"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}`)
	}, report.EndTruncated, "truncated", ""},
	{"/v1/messages", "error", func(c *call) {
		c.begin()
		c.typed("error", `,"error":{"type":"overloaded_error","message":"Overloaded"}`)
	}, report.EndFailed, "overloaded_error", "Overloaded"},
}

// TestCompleteAnswers: what counts as a complete answer, by API, is what docs/reading-reports.md says.
func TestCompleteAnswers(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		for _, c := range answerCases {
			t.Run(c.path+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				s := newServer(t, func(_ *server, call *call) {
					if call.r.URL.Path != c.path {
						t.Errorf("path %s", call.r.URL.Path)
					}
					c.script(call)
				})
				run, rows := loadURL(t, t.Context(), s.URL+c.path, Config{Client: client, Requests: 1, OSL: 1, ISL: 2})
				if r := &rows[0]; r.Ended != c.end || r.ErrorType != c.kind || r.Status != 200 {
					t.Fatalf("row %+v, want %s %s", r, c.end, c.kind)
				}
				if c.end == report.EndComplete {
					if len(run.Errors) > 0 || rows[0].OutputTokens != 1 || rows[0].Chunks != 1 || len(run.Marks) > 0 &&
						run.Marked(report.MarkNoUsage) {
						t.Errorf("errors %+v, row %+v, marks %v", run.Errors, rows[0], run.Marks)
					}
					return
				}
				if want := (report.ErrorKind{End: c.end, Status: 200, Type: c.kind, Message: c.said,
					Count: 1}); len(run.Errors) != 1 || run.Errors[0] != want {
					t.Errorf("errors %+v, want %+v", run.Errors, want)
				}
			})
		}
	})
}

// TestRequestsOfEachAPI: the body is what the API takes.
func TestRequestsOfEachAPI(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/chat/completions": `map[max_tokens:7 messages:[map[content:PROMPT role:user]] model:mock-model stream:true stream_options:map[continuous_usage_stats:true include_usage:true] x:1]`,
		"/v1/completions":      `map[max_tokens:7 model:mock-model prompt:PROMPT stream:true stream_options:map[continuous_usage_stats:true include_usage:true] x:1]`,
		"/v1/responses":        `map[input:PROMPT max_output_tokens:7 model:mock-model stream:true stream_options:map[continuous_usage_stats:true] x:1]`,
		"/v1/messages":         `map[max_tokens:7 messages:[map[content:PROMPT role:user]] model:mock-model stream:true stream_options:map[continuous_usage_stats:true] x:1]`,
	} {
		var got, version string
		s := newServer(t, func(_ *server, c *call) {
			got, version = strings.Replace(fmt.Sprint(c.body), c.id+" of", "PROMPT", 1),
				c.r.Header.Get("Anthropic-Version")
			http.Error(c.w, "", 500)
		})
		loadURL(t, t.Context(), s.URL+path, Config{Requests: 1, OSL: 7, ISL: 2,
			ExtraBody: `{"x":1,"stream_options":{"continuous_usage_stats":true}}`})
		if got != want || (version != "") != (path == "/v1/messages") {
			t.Errorf("%s, version %q:\n%s, want\n%s", path, version, got, want)
		}
	}
	for body, ok := range map[string]bool{`{"stream_options":{}}`: true, `{"stream_options":1}`: false,
		`{"stream_options":null}`: false, `{"input":"x"}`: false, `{"n":2}`: false} {
		if err := CheckBody(body); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestWhatTheServerSaid: the text of an error is in run.json, on the page and, once for each kind, in the log; but no
// secret that the server sends back.
func TestWhatTheServerSaid(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		long := strings.Repeat("é", 400)
		s := newServer(t, func(_ *server, c *call) {
			switch c.n % 4 {
			case 0, 1:
				c.w.WriteHeader(401)
				fmt.Fprintf(c.w, `{"error":{"message":"key %s%s <is> unknown","type":"auth"}}`,
					strings.TrimPrefix(c.r.Header.Get("Authorization"), "Bearer "), c.r.URL.Query().Get("api_key"))
			case 2:
				http.Error(c.w, long, http.StatusBadGateway)
			case 3:
				c.begin()
				c.text("a")
				panic(http.ErrAbortHandler)
			}
		})
		var log bytes.Buffer
		dir := t.TempDir()
		cfg := Config{URL: redact.New(s.URL + "?api_key=q-9876543210"), Dir: dir, Client: client, Concurrency: 16,
			Requests: 12, Warmup: 4, OSL: 1, ISL: 1, Header: []string{"Authorization: Bearer sk-0123456789"},
			Log: slog.New(slog.NewTextHandler(&log, nil))}
		if _, err := Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		run, err := report.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		want := []report.ErrorKind{
			{End: report.EndFailed, Status: 401, Type: "auth", Message: "key [redacted][redacted] <is> unknown",
				Count: 8},
			{End: report.EndTruncated, Status: 200, Type: "truncated", Count: 4},
			{End: report.EndFailed, Status: 502, Type: "http_502", Message: strings.Repeat("é", 250), Count: 4},
		}
		if len(run.Errors) != len(want) || run.Errors[1].Message == "" {
			t.Fatalf("errors %+v", run.Errors)
		}
		want[1].Message = run.Errors[1].Message
		for i, w := range want {
			if run.Errors[i] != w {
				t.Errorf("kind %d: %+v, want %+v", i, run.Errors[i], w)
			}
		}
		page, err := os.ReadFile(filepath.Join(dir, report.HTMLFile))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(page, []byte("key [redacted][redacted] &lt;is&gt; unknown")) {
			t.Error("the page does not say what the server said")
		}
		if n := strings.Count(log.String(), "unknown"); n != 1 || strings.Count(log.String(), "request failed") != 3 {
			t.Errorf("the message is %d times in the log:\n%s", n, &log)
		}
		if all := string(page) + log.String(); strings.Contains(all, "sk-0123456789") ||
			strings.Contains(all, "q-9876543210") {
			t.Error("the key is in the page or the log")
		}
	})
}

// TestSecretsOfURLs: whatever the URL held, in the forms in which a request carries it, is cut out of what is said.
func TestSecretsOfURLs(t *testing.T) {
	for _, raw := range []string{"http://user:hunter2-pw@h/", "http://sometoken123@h/",
		"http://h/?api_key=ab%2Bcdefgh%3D"} {
		s := newServer(t, func(_ *server, c *call) {
			auth := strings.TrimPrefix(c.r.Header.Get("Authorization"), "Basic ")
			user, pass, _ := c.r.BasicAuth()
			if _, ok := c.r.URL.User.Password(); !ok && pass == "" {
				pass = user
			}
			c.w.WriteHeader(401)
			fmt.Fprintf(c.w, `{"error":{"message":"%s|%s|%s|%s","type":"bad %s%s"}}`, auth, pass, c.r.URL.RawQuery,
				c.r.URL.Query().Get("api_key"),
				auth, c.r.URL.Query().Get("api_key"))
		})
		at := strings.Replace(raw, "h/", strings.TrimPrefix(s.URL, "http://")+"/", 1)
		run, rows := loadURL(t, t.Context(), at, Config{Requests: 1, OSL: 1, ISL: 1})
		all := fmt.Sprint(run.Errors, rows)
		for _, secret := range []string{"hunter2-pw", "sometoken123", "ab%2Bcdefgh", "ab+cdefgh", "dXNlcjpodW50ZXIy",
			"c29tZXRva2VuMTIz"} {
			if strings.Contains(all, secret) {
				t.Errorf("%s: %s is in %s", raw, secret, all)
			}
		}
		if !strings.Contains(all, "bad [redacted]") {
			t.Errorf("%s: %s", raw, all)
		}
	}
}

// TestBundledTokens: ITL is the time after the first chunk, divided by the tokens that came in it, where somebody
// knows how many those are.
func TestBundledTokens(t *testing.T) {
	const pause = 60 // ms
	usage := func(c *call, text string, total int) {
		c.data(`{"choices":[{"index":0,"delta":{"content":"` + text +
			`"},"finish_reason":null}],"usage":{"completion_tokens":` + strconv.Itoa(total) + `}}`)
	}
	for _, k := range []struct {
		name    string
		script  func(c *call)
		itl     float64 // at least, in ms; 0 = there must be none
		tokens  int     // of the first chunk
		bundled bool
	}{
		{"all in one chunk", func(c *call) { c.sse("w"); c.tokens(0, 1, 2, 3, 4); c.finish(5) }, 0, 5, true},
		{"all in one chunk, not verified", func(c *call) { c.begin(); c.text("all"); c.finish(5) }, 0, 0, true},
		{"verified text tells",
			func(c *call) { c.sse("w"); c.tokens(0, 1, 2, 3); sleepMS(pause); c.tokens(4); c.finish(5) }, pause, 4,
			true},
		{"usage with each chunk tells",
			func(c *call) { c.begin(); usage(c, "four", 4); sleepMS(pause); usage(c, "one", 5); c.finish(5) }, pause, 4,
			true},
		{"nobody tells", func(c *call) { c.begin(); c.text("four"); sleepMS(pause); c.text("one"); c.finish(5) },
			pause / 4, 0, true},
		{"one a chunk", func(c *call) { c.sse("w"); c.tokens(0); sleepMS(pause); c.tokens(1); c.finish(2) }, pause, 1,
			false},
		{"one a chunk and an end token", func(c *call) {
			c.begin()
			c.text("x")
			sleepMS(pause)
			for range 19 {
				c.text("x")
			}
			c.finish(21)
		}, pause / 20, 0, false},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			run, rows := load(t, newServer(t, func(_ *server, c *call) { k.script(c) }),
				Config{Requests: 1, OSL: 5, ISL: 1})
			itl, ok := rows[0].ITL()
			if ok != (k.itl > 0) || itl < k.itl/2*1e6 || // (the client may have read the first chunk late)
				rows[0].FirstTokens != k.tokens {
				t.Errorf("ITL %v ms (%v), want %v; first chunk %d tokens, want %d", itl/1e6, ok, k.itl,
					rows[0].FirstTokens, k.tokens)
			}
			if ok && k.tokens > 0 && itl != float64(rows[0].Last-rows[0].First)/float64(rows[0].OutputTokens-k.tokens) {
				t.Errorf("ITL %v of row %+v", itl, rows[0])
			}
			if run.Marked(report.MarkBundled) != k.bundled {
				t.Errorf("marks %v", run.Marks)
			}
		})
	}
}

// TestMissingUsageIsMarked: without usage nobody knows the tokens.
func TestMissingUsageIsMarked(t *testing.T) {
	run, _ := load(t, newServer(t, func(_ *server, c *call) {
		c.begin()
		c.text("a")
		c.data(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
		c.data("[DONE]")
	}), Config{Requests: 2, OSL: 1, ISL: 1})
	if !run.Marked(report.MarkNoUsage) || run.Raw.Requests != 2 || run.Raw.OutputTokens != nil {
		t.Errorf("marks %v, raw %+v", run.Marks, run.Raw)
	}
}
