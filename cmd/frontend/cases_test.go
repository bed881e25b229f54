package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

func body(model string, tokens int, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"a"}],"max_tokens":%d,"stream":%v}`, model,
		tokens, stream)
}

// TestHalfTheClientsLeave has clients leave at random points of their answers, before the first token and at the moment
// of the last as well: every request has one end, at the frontend and at its engine. LANEWAY_CANCELS=100000 makes it as
// many requests; -race is where it is worth it.
func TestHalfTheClientsLeave(t *testing.T) {
	n := 400
	if s := os.Getenv("LANEWAY_CANCELS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("LANEWAY_CANCELS=%s: %v", s, err)
		}
	}
	const clients, tokens = 32, 24
	p, eng := cluster(t, transport.PlaneTCP)
	p.client.Timeout = 0
	p.client.Transport.(*http.Transport).MaxIdleConnsPerHost = clients
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var next, whole, left atomic.Int64
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(c)))
			for next.Add(1) <= int64(n) {
				ctx, leave := context.WithCancel(context.Background())
				err := p.readSome(ctx, body(modelSteps, tokens, true), random.IntN(2*tokens+4)-2, tokens, leave)
				leave()
				switch {
				case err == nil:
					whole.Add(1)
				case errors.Is(err, context.Canceled):
					left.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eng.running.Wait()
	t.Logf("%d complete, %d left", whole.Load(), left.Load())
	if whole.Load()+left.Load() != int64(n) || whole.Load() == 0 || left.Load() == 0 {
		t.Errorf("%d complete and %d left of %d", whole.Load(), left.Load(), n)
	}
	started := 0.0 // a client may leave before its request does
	p.until("end of every request", func() bool {
		started = p.metric("laneway_frontend_requests_started_total")
		return p.metric("laneway_frontend_requests_total") == started
	})
	if started > float64(n) || started < float64(whole.Load()) {
		t.Errorf("%v requests are counted, %d were made and %d are complete", started, n, whole.Load())
	}
	p.untilMetric("laneway_frontend_inflight_requests", 0)
	p.untilMetric("laneway_open_streams", 0)
	p.untilMetric("laneway_committed_bytes", 0)
	// A client that leaves as its answer ends may have been served; no other is counted as gone.
	gone := p.metric("laneway_frontend_disconnected_clients_total")
	if gone > float64(left.Load()) {
		t.Errorf("%v clients are counted as gone, %d left", gone, left.Load())
	}
	if once, more := eng.ended.Load(), eng.endedTwice.Load(); once > int64(n) || more != 0 {
		t.Errorf("the engine had %d ends, %d of requests that had one", once, more)
	}
}

// readSome makes a request and leaves after so many tokens: before it is answered when it is negative. An answer that
// is read to its end must be whole.
func (p *program) readSome(ctx context.Context, body string, leaveAfter, tokens int, leave func()) error {
	r, err := http.NewRequestWithContext(ctx, "POST", p.http+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	if leaveAfter < 0 {
		defer leave()
		go leave() // at any time from now on
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for n := 0; ; {
		if n == leaveAfter {
			leave()
			return context.Canceled
		}
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return err
			}
			return io.ErrUnexpectedEOF
		}
		switch line := lines.Text(); {
		case line == "data: [DONE]":
			if n != tokens {
				return fmt.Errorf("an answer of %d tokens looks complete after %d", tokens, n)
			}
			return nil
		case strings.Contains(line, fmt.Sprintf(`"content":" %d"`, n)):
			n++
		case strings.Contains(line, `"content":" `), strings.Contains(line, `"error"`):
			return fmt.Errorf("after %d tokens: %s", n, line)
		}
	}
}

// metric is the sum of a metric over its labels.
func (p *program) metric(name string) float64 {
	p.t.Helper()
	_, page := p.get(p.admin + "/metrics")
	sum := 0.0
	for line := range strings.Lines(page) {
		label, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if k, _, _ := strings.Cut(label, "{"); k == name {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				p.t.Fatalf("%s: %v", line, err)
			}
			sum += v
		}
	}
	return sum
}

func (p *program) untilMetric(name string, want float64) {
	p.t.Helper()
	p.until(fmt.Sprintf("%s %v", name, want), func() bool { return p.metric(name) == want })
}

// TestWindowsAreGivenAway holds that requests are turned away, as overload, when what the frontend may buffer is given
// to open responses, and served again when one of those has ended.
func TestWindowsAreGivenAway(t *testing.T) {
	// a window is a 1,024th of what is free, at least 4 KiB
	p, eng := cluster(t, transport.PlaneTCP, "--max-buffered-bytes=4MiB", "--overload-status=529")
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	first := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		r, err := http.NewRequestWithContext(ctx, "POST", p.http+"/v1/chat/completions",
			strings.NewReader(body(modelForever, 1, true)))
		if err == nil {
			var resp *http.Response
			if resp, err = p.client.Do(r); err == nil {
				close(started)
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		first <- err
	}()
	select {
	case <-started:
	case err := <-first:
		t.Fatal(err)
	}
	resp := p.post(body(modelEcho, 1, true))
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 529 || !strings.Contains(string(text), `"code":"overload"`) ||
		resp.Header.Get("Retry-After") == "" {
		t.Errorf("%v %d %s", err, resp.StatusCode, text)
	}
	leave()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-eng.canceled
	p.until("a request that is served", func() bool {
		resp := p.post(body(modelEcho, 1, true))
		defer resp.Body.Close()
		return resp.StatusCode == 200
	})
}

func (p *program) until(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("no %s in %v", what, patience)
		}
	}
}
