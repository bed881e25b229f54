package frontend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLongWaitGetsComments holds that a streamed request that waits for its first record gets status, header and
// comments meanwhile, and that what comes of it then is told in the stream.
func TestLongWaitGetsComments(t *testing.T) {
	end := &EndError{End: EndRefused, Code: CodeBusy, Worker: "w-7"}
	for name := range protocols {
		for _, c := range []struct {
			name    string
			err     error
			steps   []step
			events  int
			has     string
			label   string
			status  string
			drained bool
		}{
			{"tokens", nil, []step{{recs: []string{"a", "b"}}, {err: io.EOF}}, 5, `"content":"b"`, "", "200", false},
			{"nothing", nil, []step{{err: io.EOF}}, 3, `"finish_reason"`, "", "200", false},
			{"refused", end, nil, 2, `"code":"overload"`, "overload", "429", false},
			{"failed at its first record", nil, []step{{err: &EndError{End: EndLost}}}, 3, `"code":"lost"`, "lost",
				"502", false},
			{"cut", nil, nil, 2, `"code":"unavailable"`, "unavailable", "503", true},
		} {
			t.Run(name+" "+c.name, func(t *testing.T) {
				goOn := make(chan struct{})
				b := serveProtocol(t, &scripted{}, name, func(c *Config) { c.KeepAlive = 20 * time.Millisecond })
				b.backend.open = func(ctx context.Context, _ Call) (Stream, error) {
					select {
					case <-goOn:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					if c.err != nil {
						return nil, c.err
					}
					return newPlay(c.steps...).stream(), nil
				}
				resp, _ := b.start(chatStream)
				if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" ||
					resp.Header.Get("Cache-Control") != "no-cache" ||
					resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("X-Request-Id") == "" {
					t.Errorf("%d %v", resp.StatusCode, resp.Header)
				}
				for k := range resp.Header {
					if strings.HasPrefix(k, "X-Laneway-") {
						t.Errorf("%s: %v, though no worker has answered", k, resp.Header[k])
					}
				}
				in := bufio.NewReader(resp.Body)
				for range 3 {
					if line, err := in.ReadString('\n'); err != nil || line != ": keep-alive\n" {
						t.Fatalf("%v %q", err, line)
					}
				}
				if c.drained {
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					if _, err := b.Drain(ctx); err != nil {
						t.Error(err)
					}
				}
				close(goOn)
				rest, err := io.ReadAll(in)
				text := strings.ReplaceAll(string(rest), ": keep-alive\n", "")
				if err != nil || strings.Count(text, "data: ") != c.events || !strings.Contains(text, c.has) ||
					!strings.HasSuffix(text, "data: [DONE]\n\n") {
					t.Errorf("%v: %q, expected %d events with %s", err, text, c.events, c.has)
				}
				b.untilValue(1, requests, "status", c.status, "error_type", c.label)
				b.untilOpen(0)
			})
		}
	}
}

// TestLongWaitOfAReply: what is not streamed gets nothing before its answer, and keeps its status.
func TestLongWaitOfAReply(t *testing.T) {
	b := serve(t, &scripted{}, func(c *Config) { c.KeepAlive = time.Millisecond })
	b.backend.open = func(context.Context, Call) (Stream, error) {
		time.Sleep(20 * time.Millisecond) // twenty intervals
		return nil, &EndError{End: EndRefused, Code: CodeBusy, Worker: "w-7"}
	}
	if a := b.do("POST", "/v1/chat/completions", chatBody); a.status != 429 || strings.Contains(a.body, "keep-alive") ||
		a.header.Get("X-Laneway-Worker") != "w-7" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

// TestClientThatLeavesALongWait: it is noticed by the comments too, and counted once.
func TestClientThatLeavesALongWait(t *testing.T) {
	for name := range protocols {
		t.Run(name, func(t *testing.T) {
			b := serveProtocol(t, &scripted{}, name, func(c *Config) { c.KeepAlive = 5 * time.Millisecond })
			b.backend.open = func(ctx context.Context, _ Call) (Stream, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			_, cancel := b.start(chatStream)
			cancel()
			b.goneOnce()
		})
	}
}

// TestFirstRecordsAndCommentsDoNotMix has first records come at the moment of the first comment.
func TestFirstRecordsAndCommentsDoNotMix(t *testing.T) {
	for name := range protocols {
		t.Run(name, func(t *testing.T) {
			b := serveProtocol(t, &scripted{}, name, func(c *Config) { c.KeepAlive = 4 * time.Millisecond })
			b.backend.open = func(context.Context, Call) (Stream, error) {
				time.Sleep(time.Duration(rand.IntN(8000)) * time.Microsecond) // anywhere about the ticker's 4 to 5 ms
				return newPlay(step{recs: []string{"a", "b"}}, step{err: io.EOF}).stream(), nil
			}
			var clients sync.WaitGroup
			for range 20 {
				clients.Go(func() {
					for range 10 {
						resp, err := b.client.Post(b.url+"/v1/chat/completions", "application/json",
							strings.NewReader(chatStream))
						if err != nil {
							t.Error(err)
							return
						}
						body, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						text := strings.ReplaceAll(string(body), ": keep-alive\n", "")
						if err != nil || resp.StatusCode != http.StatusOK || strings.Count(text, "data: ") != 5 ||
							!strings.HasSuffix(text, "data: [DONE]\n\n") {
							t.Errorf("%v %d %q", err, resp.StatusCode, body)
						}
					}
				})
			}
			clients.Wait()
			b.untilOpen(0)
		})
	}
}

// TestAnswersHaveIDsOfTheirOwn: what a client calls its requests is echoed, and the answers are called otherwise.
func TestAnswersHaveIDsOfTheirOwn(t *testing.T) {
	b := serve(t, &scripted{}, nil)
	b.backend.open = func(context.Context, Call) (Stream, error) {
		return newPlay(step{recs: []string{"a"}}, step{err: io.EOF}).stream(), nil
	}
	seen := map[string]bool{}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		for _, stream := range []bool{true, false} {
			for range 2 {
				a := b.do("POST", path,
					fmt.Sprintf(`{"model":"m","prompt":"a","messages":[{"role":"user","content":"a"}],"stream":%t}`,
						stream), "X-Request-Id", "mine")
				c := b.backend.lastCall()
				if a.header.Get("X-Request-Id") != "mine" || c.ClientID != "mine" || c.ID == "mine" || seen[c.ID] ||
					!strings.Contains(a.body, `cmpl-`+c.ID+`"`) || strings.Contains(a.body, "mine") {
					t.Errorf("%v, call %+v: %s", a.header, c, a.body)
				}
				seen[c.ID] = true
			}
		}
	}
}
