package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// start sends a request and returns its response and what cancels it.
func (b *bench) start(body string) (*http.Response, context.CancelFunc) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/chat/completions", strings.NewReader(body))
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { cancel(); resp.Body.Close() })
	return resp, cancel
}

func (b *bench) goneOnce() {
	b.t.Helper()
	b.untilOpen(0)
	b.untilValue(1, requests, "status", "499", "error_type", "cancelled")
	b.untilValue(1, "laneway_frontend_disconnected_clients_total")
	b.untilValue(1, requests)
	b.untilValue(0, "laneway_frontend_inflight_requests")
}

func TestClientThatLeavesInMidStreamKills(t *testing.T) {
	for _, keepAlive := range []time.Duration{-1, 10 * time.Millisecond, time.Minute} {
		p := newPlay(step{recs: []string{"a"}})
		b := serve(t, playing(p), func(c *Config) { c.KeepAlive = keepAlive })
		_, cancel := b.start(chatStream)
		cancel()
		p.waitFor(t, "killed", p.killed)
		p.waitFor(t, "closed", p.shut)
		b.goneOnce()
	}
}

func TestClientThatLeavesWhileAReplyIsCollectedKills(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}})
	b := serve(t, playing(p), nil)
	ctx, cancel := context.WithCancel(context.Background())
	b.backend.open = func(context.Context, Call) (Stream, error) { cancel(); return p.stream(), nil }
	r, _ := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/chat/completions", strings.NewReader(chatBody))
	if _, err := b.client.Do(r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	p.waitFor(t, "killed", p.killed)
	b.goneOnce()
}

func TestClientThatLeavesBeforeTheFirstRecord(t *testing.T) {
	ended := make(chan error, 1)
	waiting := make(chan struct{})
	b := serve(t, &scripted{open: func(ctx context.Context, c Call) (Stream, error) {
		close(waiting)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-waiting; cancel() }()
	r, _ := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/chat/completions", strings.NewReader(chatStream))
	if _, err := b.client.Do(r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("Open was not cancelled")
	}
	b.goneOnce()
}

func TestStopOnDisconnect(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}})
	b := serve(t, playing(p), func(c *Config) { c.StopOnDisconnect = true })
	_, cancel := b.start(chatStream)
	cancel()
	p.waitFor(t, "stopped", p.stopped)
	p.steps <- step{recs: []string{"b"}} // the worker's last output
	p.steps <- step{err: &EndError{End: EndStopped}}
	p.waitFor(t, "closed", p.shut)
	select {
	case <-p.killed:
		t.Error("killed although it stopped")
	default:
	}
	b.goneOnce()
	b.untilValue(2, "laneway_frontend_output_tokens_total")
}

func TestStopThatIsNotHeardIsBounded(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}})
	b := serve(t, playing(p), func(c *Config) { c.StopOnDisconnect, c.StopGrace = true, 20*time.Millisecond })
	_, cancel := b.start(chatStream)
	cancel()
	p.waitFor(t, "closed", p.shut) // and so killed by the plane
	b.goneOnce()
}

// TestStalledClient holds that a client that takes no bytes costs its own response only, and that for WriteTimeout.
func TestStalledClient(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}})
	b := serve(t, playing(p), func(c *Config) { c.WriteTimeout = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(chatStream),
		chatStream)
	big := step{recs: []string{strings.Repeat("x", 1<<20)}}
	for done := false; !done; {
		select {
		case p.steps <- big:
		case <-p.killed:
			done = true
		case <-time.After(patience):
			t.Fatal("the stalled client's response was not killed")
		}
	}
	p.waitFor(t, "closed", p.shut)
	b.goneOnce()
}

// TestSlowClientIsNotCut reads a reply that is larger than what the kernel holds, slowly, for at least two write
// timeouts. LANEWAY_SLOW_CLIENT=60s has it take as long. A kernel tells the server of what the client has read in
// pieces of some hundred KiB, so the slower the client the longer the timeout.
func TestSlowClientIsNotCut(t *testing.T) {
	const size = 16 << 20
	slow := 2500 * time.Millisecond
	if s := os.Getenv("LANEWAY_SLOW_CLIENT"); s != "" {
		var err error
		if slow, err = time.ParseDuration(s); err != nil {
			t.Fatalf("LANEWAY_SLOW_CLIENT=%s: %v", s, err)
		}
	}
	p := newPlay(step{recs: []string{strings.Repeat("x", size)}}, step{err: io.EOF})
	b := serve(t, playing(p), func(c *Config) { c.WriteTimeout, c.MaxReplyBytes = max(time.Second, slow/6), 2*size })
	b.client.Timeout += slow
	resp, _ := b.start(chatBody)
	buf := make([]byte, 64<<10)
	n := 0
	for begin := time.Now(); ; {
		k, err := io.ReadFull(resp.Body, buf)
		n += k
		if err != nil {
			break
		}
		if time.Since(begin) < slow {
			time.Sleep(slow / 300) // the client's own pace
		}
	}
	if n < size || n > size+1000 {
		t.Errorf("got %d bytes of %d", n, size)
	}
}

func TestCancelStorm(t *testing.T) {
	const n = 100
	var mu sync.Mutex
	var plays []*play
	b := serve(t, &scripted{}, func(c *Config) { c.KeepAlive = 5 * time.Millisecond })
	b.backend.open = func(context.Context, Call) (Stream, error) {
		p := newPlay(step{recs: []string{"a"}})
		mu.Lock()
		plays = append(plays, p)
		mu.Unlock()
		return p.stream(), nil
	}
	var cancels []context.CancelFunc
	for range n {
		_, cancel := b.start(chatStream)
		cancels = append(cancels, cancel)
	}
	for _, c := range cancels {
		c()
	}
	for _, p := range plays {
		p.waitFor(t, "killed", p.killed)
		p.waitFor(t, "closed", p.shut)
	}
	b.untilOpen(0)
	b.untilValue(n, "laneway_frontend_disconnected_clients_total")
	b.untilValue(n, requests)
	if k := len(b.keeper.all); k != 0 {
		t.Errorf("%d streams are still looked after", k)
	}
}

func TestDrain(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}})
	b := serve(t, playing(p), nil)
	resp, _ := b.start(chatStream)
	b.Refuse()
	if err := b.Ready(); err == nil {
		t.Error("ready while draining")
	}
	a := b.do("POST", "/v1/chat/completions", chatBody)
	if _, code, _, _ := errorOf(t, a.body); a.status != 503 || code != "unavailable" ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	done := make(chan int, 1)
	go func() {
		cut, err := b.Drain(context.Background())
		if err != nil {
			t.Error(err)
		}
		done <- cut
	}()
	p.steps <- step{recs: []string{"b"}}
	p.steps <- step{err: io.EOF}
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), `"finish_reason":"length"`) || !strings.HasSuffix(string(body),
		"data: [DONE]\n\n") {
		t.Errorf("%v: %s", err, body)
	}
	select {
	case cut := <-done:
		if cut != 0 {
			t.Errorf("%d were cut", cut)
		}
	case <-time.After(patience):
		t.Fatal("Drain does not return")
	}
}

func TestDrainTimeoutCutsWithAnError(t *testing.T) {
	p := newPlay(step{recs: []string{"a"}})
	waiting := make(chan struct{})
	b := serve(t, &scripted{}, nil)
	b.backend.open = func(ctx context.Context, c Call) (Stream, error) {
		if c.ClientID == "early" {
			close(waiting)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return p.stream(), nil
	}
	resp, _ := b.start(chatStream)
	early := make(chan answer, 1)
	go func() { early <- b.do("POST", "/v1/chat/completions", chatStream, "X-Request-Id", "early") }()
	<-waiting
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if cut, err := b.Drain(ctx); cut != 2 || err != nil {
		t.Errorf("cut %d, %v", cut, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), `"code":"unavailable"`) || !strings.HasSuffix(string(body),
		"data: [DONE]\n\n") {
		t.Errorf("%v: %s", err, body)
	}
	if a := <-early; a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("before the first record: %d %s", a.status, a.body)
	}
	p.waitFor(t, "killed", p.killed)
	b.untilValue(0, "laneway_frontend_disconnected_clients_total")
	b.untilValue(2, requests, "status", "503", "error_type", "unavailable")
}

func TestReadyFollowsTheBackend(t *testing.T) {
	b := serve(t, &scripted{ready: errBoom}, nil)
	if err := b.Ready(); !errors.Is(err, errBoom) {
		t.Error(err)
	}
}
