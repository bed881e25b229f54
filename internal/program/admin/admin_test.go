package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Addr = "127.0.0.1:0"
	s, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	resp, err := client.Get("http://" + s.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestMetricsAndProfiles(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "laneway_test_total", Help: "A test."})
	reg.MustRegister(c)
	c.Add(3)
	s := start(t, Config{Metrics: reg})
	s.Handle("GET /debug/plane", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	for path, want := range map[string]string{
		"/metrics":                       "laneway_test_total 3\n",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile: total",
		"/debug/pprof/cmdline":           "admin.test",
		"/debug/plane":                   "{}",
	} {
		if code, body := get(t, s, path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.100q, want %q in it", path, code, body, want)
		}
	}
	if code, _ := get(t, s, "/nothing"); code != 404 {
		t.Errorf("unknown path: %d", code)
	}
	if code, _ := get(t, start(t, Config{}), "/metrics"); code != 404 {
		t.Errorf("/metrics without a registry: %d", code)
	}
}

func TestHealth(t *testing.T) {
	var live, ready atomic.Pointer[error]
	check := func(p *atomic.Pointer[error]) func() error {
		return func() error {
			if e := p.Load(); e != nil {
				return *e
			}
			return nil
		}
	}
	s := start(t, Config{Live: check(&live), Ready: check(&ready)})
	expect := func(code int, body string, paths ...string) {
		t.Helper()
		for _, p := range paths {
			if c, b := get(t, s, p); c != code || b != body {
				t.Errorf("%s: %d %q, want %d %q", p, c, b, code, body)
			}
		}
	}
	expect(200, "ok\n", "/livez", "/live", "/readyz", "/health")
	err := errors.New("no worker can be reached")
	ready.Store(&err)
	expect(200, "ok\n", "/livez", "/live")
	expect(503, "no worker can be reached\n", "/readyz", "/health")
	live.Store(&err)
	expect(503, "no worker can be reached\n", "/livez", "/live")
}

func TestPortInUse(t *testing.T) {
	s := start(t, Config{})
	_, err := Start(context.Background(), Config{Addr: s.Addr().String()})
	var fe *cli.FlagError
	if !errors.As(err, &fe) || !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), "--admin-addr "+
		s.Addr().String()+": the port is in use") {
		t.Errorf("got %v", err)
	}
	if _, err := Start(context.Background(), Config{}); err == nil {
		t.Error("an empty address was taken")
	}
}

// TestCloseEndsWaitingAnswers closes while an answer waits on its context, as a profile of 30 s does.
func TestCloseEndsWaitingAnswers(t *testing.T) {
	s := start(t, Config{})
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	entered := make(chan struct{})
	s.Handle("GET /wait", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}))
	fmt.Fprint(conn, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }() // joined by the receive below
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Close hangs")
	}
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("the running answer was cut: %v", err)
	}
	if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
		t.Error("the port is still open")
	}
}

// TestCloseCutsAnAnswerThatDoesNotEnd closes while a handler pays no heed to its context.
func TestCloseCutsAnAnswerThatDoesNotEnd(t *testing.T) {
	s := start(t, Config{})
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	s.Handle("GET /stuck", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(entered); <-release }))
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v from a connection that should have been cut", n, err)
	}
}
