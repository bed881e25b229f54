package loadgen

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// wireServer is a server whose script writes the bytes of its responses itself.
type wireServer struct {
	url   string
	open  atomic.Int64 // connections
	conns atomic.Int64 // that there have been
	ends  func()
}

// newWireServer serves until the test ends. script answers one request; an error ends the connection.
func newWireServer(t *testing.T, script func(conn *net.TCPConn, id string, osl int) error) *wireServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &wireServer{url: "http://" + ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() { // ends with the listener
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.open.Add(1)
			s.conns.Add(1)
			wg.Go(func() { // ends with its connection, which is the client's to close
				defer s.open.Add(-1)
				defer conn.Close()
				for r := bufio.NewReader(conn); ; {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					body, err := io.ReadAll(req.Body)
					if err != nil {
						return
					}
					osl := 0
					_, rest, _ := strings.Cut(string(body), `"max_tokens":`)
					fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &osl)
					if script(conn.(*net.TCPConn), req.Header.Get("X-Request-Id"), osl) != nil {
						return
					}
				}
			})
		}
	})
	s.ends = sync.OnceFunc(func() {
		ln.Close()
		wg.Wait()
	})
	t.Cleanup(s.ends)
	return s
}

// run makes a run against the server.
func (s *wireServer) run(t *testing.T, ctx context.Context, cfg Config) (*report.Run, []report.Row) {
	t.Helper()
	cfg.Model = "m"
	return loadURL(t, ctx, s.url, cfg)
}

// answer is a whole response with n tokens, an event and a chunk each.
func answer(id string, n int) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Laneway-Worker: w\r\nTransfer-Encoding: " +
		"chunked\r\n\r\n")
	event := func(s string) { fmt.Fprintf(&b, "%x\r\ndata: %s\n\n\r\n", len(s)+8, s) }
	g := tokentext.New(id)
	for i := range n {
		event(fmt.Sprintf(`{"id":"x","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`,
			g.Append(nil, i)))
	}
	event(`{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`)
	event(fmt.Sprintf(`{"id":"x","choices":[],"usage":{"completion_tokens":%d}}`, n))
	event("[DONE]")
	b.WriteString("0\r\n\r\n")
	return b.String()
}

// cuts are ways to write a response.
var cuts = map[string]struct {
	osl   int
	write func(conn net.Conn, p string) error
}{
	"whole": {300, func(conn net.Conn, p string) error {
		_, err := io.WriteString(conn, p) // more than one buffer of the client's
		return err
	}},
	"byte by byte": {8, func(conn net.Conn, p string) error {
		for i := range len(p) {
			if _, err := io.WriteString(conn, p[i:i+1]); err != nil {
				return err
			}
			if i%16 == 0 {
				runtime.Gosched() // so that the client often reads in between
			}
		}
		return nil
	}},
	"slowly": {2, func(conn net.Conn, p string) error {
		for i := range len(p) {
			if i%3 == 0 {
				time.Sleep(time.Millisecond)
			}
			if _, err := io.WriteString(conn, p[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}},
	"in random pieces": {200, func(conn net.Conn, p string) error {
		rng := rand.New(rand.NewPCG(1, uint64(len(p))))
		for len(p) > 0 {
			n := min(1+rng.IntN(700), len(p))
			if _, err := io.WriteString(conn, p[:n]); err != nil {
				return err
			}
			p = p[n:]
		}
		return nil
	}},
}

// TestHowBytesAreCut: however a response comes, its tokens are the same.
func TestHowBytesAreCut(t *testing.T) {
	for name, c := range cuts {
		t.Run(name, func(t *testing.T) {
			clients(t, func(t *testing.T, client string) {
				s := newWireServer(t, func(conn *net.TCPConn, id string,
					osl int) error {
					return c.write(conn, answer(id, osl))
				})
				run, rows := s.run(t, t.Context(), Config{Client: client, Concurrency: 8, Requests: 24, OSL: c.osl,
					ISL: 2})
				if w := run.Raw; w.Requests != 24 || *w.WrongTokens != 0 || w.Chunks != int64(24*c.osl) {
					t.Errorf("raw %+v, rows %+v", w, rows)
				}
				if n := s.conns.Load(); n > 8+1 { // and the one that looks whether there is a server
					t.Errorf("%d connections for 8 slots", n)
				}
			})
		})
	}
}

// TestBytesAfterAResponse: the response counts, and what follows it is not taken for the next one.
func TestBytesAfterAResponse(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		s := newWireServer(t, func(conn *net.TCPConn, id string, osl int) error {
			_, err := io.WriteString(conn, answer(id, osl)+"HTTP/1.1 200 OK\r\n")
			return err
		})
		run, rows := s.run(t, t.Context(), Config{Client: client, Concurrency: 4, Requests: 40, OSL: 3, ISL: 2})
		if w := run.Raw; w.Requests != 40 || *w.WrongTokens != 0 || w.Chunks != 40*3 {
			t.Errorf("raw %+v", w)
		}
		for i := range rows {
			if r := &rows[i]; r.Intended > r.Sent || r.Sent > r.First || r.First > r.Last || r.Last > r.End {
				t.Errorf("times out of order: %+v", r)
			}
		}
	})
}

// TestResets: a connection that the server resets in the middle is a truncated response, and the slot goes on.
func TestResets(t *testing.T) {
	for name, share := range map[string]float64{"before the response": 0, "in its middle": .5} {
		t.Run(name, func(t *testing.T) {
			clients(t, func(t *testing.T, client string) {
				var n atomic.Int64
				s := newWireServer(t, func(conn *net.TCPConn, id string, osl int) error {
					a := answer(id, osl)
					if n.Add(1)%2 == 0 {
						_, err := io.WriteString(conn, a)
						return err
					}
					if _, err := io.WriteString(conn, a[:int(share*float64(len(a)))]); err != nil {
						return err
					}
					_ = conn.SetLinger(0)
					return io.EOF
				})
				run, rows := s.run(t, t.Context(), Config{Client: client, Concurrency: 1, Requests: 8, OSL: 6, ISL: 2})
				if len(rows) != 8 || run.Raw.Requests+run.Raw.Errors != 8 || run.Raw.Requests < 4 {
					t.Fatalf("raw %+v, rows %+v", run.Raw, rows)
				}
				for i := range rows {
					if r := &rows[i]; !r.OK() && r.Ended != report.EndTruncated {
						t.Errorf("row %+v", r)
					}
				}
			})
		})
	}
}

// TestLargeRequest has a request that no socket takes at once.
func TestLargeRequest(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		s := newWireServer(t, func(conn *net.TCPConn, id string, osl int) error {
			_, err := io.WriteString(conn, answer(id, osl))
			return err
		})
		run, _ := s.run(t, t.Context(), Config{Client: client, Concurrency: 2, Requests: 4, OSL: 3, ISL: 1_000_000})
		if w := run.Raw; w.Requests != 4 || *w.WrongTokens != 0 {
			t.Errorf("raw %+v", w)
		}
	})
}

// many is how many connections the tests of many have.
func many(t *testing.T, want int) int {
	t.Helper()
	if testing.Short() {
		want /= 10
	}
	if err := cli.NeedFiles(2*want+200, "this test"); err != nil {
		t.Skip(err)
	}
	return want
}

// files counts this process's open files, -1 where that cannot be seen.
func files() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(list)
}

// TestThousandsOfConnections: all at once, each for several responses, and none is left.
func TestThousandsOfConnections(t *testing.T) {
	n := many(t, 3000)
	clients(t, func(t *testing.T, client string) {
		s := newWireServer(t, func(conn *net.TCPConn, id string, osl int) error {
			a := answer(id, osl)
			for i := range 4 { // four times a burst over all connections
				if _, err := io.WriteString(conn, a[len(a)*i/4:len(a)*(i+1)/4]); err != nil {
					return err
				}
				runtime.Gosched()
			}
			return nil
		})
		before := files()
		run, rows := s.run(t, t.Context(), Config{Client: client, Concurrency: n, Requests: 2 * n, OSL: 6, ISL: 2,
			Loops: 2, Tick: time.Millisecond})
		if w := run.Raw; w.Requests != 2*n || *w.WrongTokens != 0 || len(rows) != 2*n {
			t.Errorf("raw %+v", w)
		}
		allGone(t, s, before)
	})
}

// TestInterruptClosesAll: when the run is interrupted, each open request has one row, and the server sees each
// connection end.
func TestInterruptClosesAll(t *testing.T) {
	n := many(t, 2000)
	clients(t, func(t *testing.T, client string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var open atomic.Int64
		s := newWireServer(t, func(conn *net.TCPConn, id string, osl int) error {
			a := answer(id, osl)
			if _, err := io.WriteString(conn, a[:len(a)/2]); err != nil {
				return err
			}
			if open.Add(1) == int64(n) {
				cancel()
			}
			return nil // and wait for the next request, which is the connection's end
		})
		before := files()
		run, rows := s.run(t, ctx, Config{Client: client, Concurrency: n, Requests: 2 * n, OSL: 6, ISL: 2, Loops: 2})
		if w := run.Raw; !run.Marked(report.MarkPartial) || w.Canceled != n || w.Requests+w.Errors != 0 ||
			len(rows) != n {
			t.Errorf("marks %v, raw %+v, %d rows", run.Marks, w, len(rows))
		}
		allGone(t, s, before)
	})
}

// allGone waits until the server has seen all connections end, and wants no more open files than before.
func allGone(t *testing.T, s *wireServer, before int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); s.open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are still open", s.open.Load())
		}
	}
	if after := files(); after > before {
		t.Errorf("%d open files, %d before", after, before)
	}
}
