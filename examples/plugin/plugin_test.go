package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startWorker runs the worker's side on real sockets.
func startWorker(t *testing.T, pace time.Duration) (url string, plane *responseplane.Worker) {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	ts, err := planes(id)
	if err != nil {
		t.Fatal(err)
	}
	plane, err = responseplane.NewWorker(responseplane.WorkerConfig{Identity: id, Transports: ts,
		BindAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newWorkerServer(plane, pace)
	web := httptest.NewServer(s.handler())
	t.Cleanup(func() { web.Close(); s.Close(); plane.Close(); closeAll(ts) })
	return web.URL, plane
}

func startFrontend(t *testing.T, open bool, workers ...string) (url string, plane *responseplane.Frontend) {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	ts, err := planes(id)
	if err != nil {
		t.Fatal(err)
	}
	plane, err = responseplane.NewFrontend(responseplane.FrontendConfig{Identity: id, Transports: ts})
	if err != nil {
		t.Fatal(err)
	}
	s := &frontendServer{plane: plane, client: &http.Client{}, open: open}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.discover(ctx, workers); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.handler())
	t.Cleanup(func() { web.Close(); s.client.CloseIdleConnections(); plane.Close(); closeAll(ts) })
	return web.URL, plane
}

func generate(t *testing.T, url, prompt string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/generate",
		strings.NewReader(`{"prompt":"`+prompt+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestTokensOverTwoWorkers(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	for name, open := range map[string]bool{"minted terms": false, "open terms": true} {
		t.Run(name, func(t *testing.T) {
			a, planeA := startWorker(t, 5*time.Millisecond)
			b, planeB := startWorker(t, 5*time.Millisecond)
			url, _ := startFrontend(t, open, a, b)
			const want = "data: one \n\ndata: two \n\ndata: three \n\nevent: done\ndata: " +
				"{\"finish_reason\":\"stop\"}\n\n"
			for range 4 {
				body, err := io.ReadAll(generate(t, url, "one two three").Body)
				if err != nil || string(body) != want {
					t.Fatalf("body %q, error %v, want %q", body, err, want)
				}
			}
			for i, plane := range []*responseplane.Worker{planeA, planeB} {
				if n := plane.Stats().StreamsOpened; n != 2 {
					t.Errorf("worker %d had %d responses, want 2: the router takes turns", i, n)
				}
			}
		})
	}
}

// A client that leaves ends the work at the engine.
func TestClientLeaves(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	worker, plane := startWorker(t, 5*time.Millisecond)
	url, _ := startFrontend(t, false, worker)
	resp := generate(t, url, strings.Repeat("word ", 100_000))
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "data: word \n" {
		t.Fatalf("first line %q, %v", line, err)
	}
	resp.Body.Close()
	waitFor(t, "the response to end at the worker", func() bool { return plane.Stats().OpenStreams == 0 })
}

// A worker that went away is passed over while there is another, and said so when there is none.
func TestWorkerGone(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	gone, goneplane := startWorker(t, 5*time.Millisecond)
	stays, _ := startWorker(t, 5*time.Millisecond)
	url, _ := startFrontend(t, false, gone, stays)
	only, _ := startFrontend(t, false, gone)
	goneplane.Close()
	for range 4 {
		if body, _ := io.ReadAll(generate(t, url, "still here").Body); !strings.Contains(string(body), "event: done") {
			t.Fatalf("with one worker left: %q", body)
		}
	}
	waitFor(t, "503 with the only worker gone", func() bool {
		return generate(t, only, "nobody").StatusCode == http.StatusServiceUnavailable
	})
}

func TestBadUse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "say which side"},
		{[]string{"sideways"}, `"sideways" is no side`},
		{[]string{"frontend"}, "--worker is missing"},
	} {
		if err := run(t.Context(), c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("run(%q) = %v, want an error with %q", c.args, err, c.want)
		}
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

// TestWorkerStartsLate: a frontend that is started first waits for its worker, and says who did not come.
func TestWorkerStartsLate(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	worker, _ := startWorker(t, time.Millisecond)
	asked := make(chan struct{}, 100)
	var ready atomic.Bool
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			asked <- struct{}{}
			panic(http.ErrAbortHandler) // the connection breaks, as when nobody listens
		}
		http.Redirect(w, r, worker+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer late.Close()
	go func() { <-asked; ready.Store(true) }() // ends with the first question
	url, _ := startFrontend(t, false, late.URL)
	if body, err := io.ReadAll(generate(t, url, "one").Body); err != nil || !strings.Contains(string(body),
		"event: done") {
		t.Errorf("%q, %v", body, err)
	}

	s := &frontendServer{client: &http.Client{}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.discover(ctx, []string{"http://127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(),
		"127.0.0.1:1") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestBadArguments(t *testing.T) {
	for args, want := range map[string]string{
		"": "say which side", "router": `"router" is no side`, "worker extra -x": `"extra" is not understood`,
		"frontend": "--worker is missing",
		"frontend --worker http://127.0.0.1:1 extra": `"extra" is not understood`,
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
