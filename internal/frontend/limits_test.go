package frontend

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// protocols are the ways in which a client can speak to a server.
var protocols = map[string]struct {
	tls   bool
	proto int // major
}{
	"HTTP/1.1": {false, 1}, "h2c": {false, 2}, "HTTP/1.1 over TLS": {true, 1}, "h2 over TLS": {true, 2},
}

// serveProtocol starts a server whose client speaks the protocol of that name.
func serveProtocol(t *testing.T, backend *scripted, name string, edit func(*Config)) *bench {
	t.Helper()
	how := protocols[name]
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	cert.Close()
	b := serve(t, backend, func(c *Config) {
		if how.tls {
			c.TLS = &tls.Config{Certificates: cert.TLS.Certificates}
		}
		if edit != nil {
			edit(c)
		}
	})
	tr := cert.Client().Transport.(*http.Transport).Clone()
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetHTTP1(how.proto == 1)
	tr.Protocols.SetHTTP2(how.proto == 2)
	tr.Protocols.SetUnencryptedHTTP2(how.proto == 2 && !how.tls)
	tr.MaxResponseHeaderBytes = 1 << 20
	b.client = &http.Client{Transport: tr, Timeout: 2 * patience}
	t.Cleanup(tr.CloseIdleConnections)
	if how.tls {
		b.url = "https://" + b.addr
	}
	return b
}

// writeTime is a write timeout for tests that outwait it: so long that a machine under load does not keep a write from
// being made for it.
const writeTime = 5 * time.Second

// TestProtocols holds that each protocol brings tokens one by one, without a server-wide write timeout, and that a
// client that leaves is noticed: over HTTP/2 the connection stays, only its stream is reset.
func TestProtocols(t *testing.T) {
	for name, how := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlay(step{recs: []string{"first"}})
			b := serveProtocol(t, playing(p), name, func(c *Config) { c.WriteTimeout = writeTime })
			resp, cancel := b.start(chatStream)
			if resp.ProtoMajor != how.proto || resp.StatusCode != 200 ||
				resp.Header.Get("Content-Type") != "text/event-stream" ||
				resp.Header.Get("Cache-Control") != "no-cache" || resp.Header.Get("X-Accel-Buffering") != "no" {
				t.Fatalf("%s %d %v", resp.Proto, resp.StatusCode, resp.Header)
			}
			r := bufio.NewReader(resp.Body)
			event := func() string {
				t.Helper()
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(line, "data: ") && !strings.Contains(line, `"role"`) {
						return line
					}
				}
			}
			if e := event(); !strings.Contains(e, `"first"`) {
				t.Error(e)
			}
			for i := range 4 { // the next is played when the one before is there
				if i == 2 {
					time.Sleep(writeTime + writeTime/10) // longer than a write may take
				}
				p.steps <- step{recs: []string{fmt.Sprintf("token-%d", i)}}
				if e := event(); !strings.Contains(e, fmt.Sprintf("token-%d", i)) {
					t.Error(e)
				}
			}
			cancel()
			p.waitFor(t, "killed", p.killed)
			p.waitFor(t, "closed", p.shut)
			b.goneOnce()
			if n := b.value("laneway_frontend_open_connections"); how.proto == 2 && n != 1 {
				t.Errorf("%v connections are open after a stream was reset, want 1", n)
			}
			// The client's connection is idle once it has taken note of the end of its stream, so it is asked more than
			// once.
			for end := time.Now().Add(patience); b.value("laneway_frontend_open_connections") != 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the connection is still open")
				}
				b.client.CloseIdleConnections()
			}
		})
	}
}

// TestLongWaitForTheFirstRecord holds that no deadline for writes ends a request that waits for its first record.
func TestLongWaitForTheFirstRecord(t *testing.T) {
	for name := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serveProtocol(t, &scripted{}, name, func(c *Config) { c.WriteTimeout = writeTime })
			b.backend.open = func(ctx context.Context, _ Call) (Stream, error) {
				select {
				case <-time.After(writeTime + writeTime/10):
					return newPlay(step{recs: []string{"a"}}, step{err: io.EOF}).stream(), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			for _, body := range []string{chatBody, chatStream} {
				if a := b.do("POST", "/v1/chat/completions", body); a.status != 200 ||
					!strings.Contains(a.body, `"content":"a"`) {
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
}

// TestStalledHTTP2Stream holds that a client that takes no more of one stream loses that stream only, within the write
// timeout.
func TestStalledHTTP2Stream(t *testing.T) {
	stalled, other := newPlay(step{recs: []string{"a"}}), newPlay(step{recs: []string{"a"}})
	b := serveProtocol(t, &scripted{}, "h2c", func(c *Config) { c.WriteTimeout = writeTime / 2 })
	plays := []*play{stalled, other}
	b.backend.open = func(context.Context, Call) (Stream, error) {
		p := plays[0]
		plays = plays[1:]
		return p.stream(), nil
	}
	b.start(chatStream) // nobody reads its body
	resp, _ := b.start(chatStream)
	big := step{recs: []string{strings.Repeat("x", 1<<20)}}
	for done := false; !done; {
		select {
		case stalled.steps <- big:
		case <-stalled.killed:
			done = true
		case <-time.After(patience):
			t.Fatal("the stalled stream was not killed")
		}
	}
	other.steps <- step{recs: []string{"b"}}
	other.steps <- step{err: io.EOF}
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		t.Errorf("the other stream of the connection: %v %q", err, body)
	}
	b.untilValue(1, "laneway_frontend_slow_clients_total")
	b.untilValue(1, requests, "status", "499")
	b.untilValue(1, requests, "status", "200")
}

// TestOverLimits holds that what is too much gets one error object that says what and how much.
func TestOverLimits(t *testing.T) {
	for name := range protocols {
		t.Run(name, func(t *testing.T) {
			b := serveProtocol(t, playing(newPlay(step{err: io.EOF})), name,
				func(c *Config) { c.MaxHeaderBytes, c.MaxBodyBytes = 4096, 1000 })
			for _, path := range []string{"/v1/chat/completions", "/v1/models"} {
				a := b.do("POST", path, chatBody, "X-Long", strings.Repeat("x", 5000))
				if _, code, _, msg := errorOf(t, a.body); a.status != 431 || code != "header_too_large" ||
					!strings.Contains(msg, "4096") {
					t.Errorf("header to %s: %d %s", path, a.status, a.body)
				}
			}
			a := b.do("POST", "/v1/chat/completions", strings.Repeat(" ", 1000)+chatBody)
			if _, code, _, msg := errorOf(t, a.body); a.status != 413 || code != "body_too_large" ||
				!strings.Contains(msg, "1000") {
				t.Errorf("body: %d %s", a.status, a.body)
			}
			if a := b.do("POST", "/v1/chat/completions", chatBody, "X-Long",
				strings.Repeat("x", 3000)); a.status != 200 {
				t.Errorf("within the limits: %d %s", a.status, a.body)
			}
			b.untilValue(3, "laneway_frontend_requests_started_total")
			b.untilValue(3, requests)
			b.untilValue(2, requests, "error_type", "validation")
		})
	}
}

func TestTooManyConnections(t *testing.T) {
	for name := range protocols {
		t.Run(name, func(t *testing.T) {
			b := serveProtocol(t, playing(newPlay(step{err: io.EOF})), name, func(c *Config) { c.MaxConnections = 3 })
			var idle []net.Conn
			for range 3 {
				c, err := net.Dial("tcp", b.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				idle = append(idle, c)
			}
			b.untilValue(3, "laneway_frontend_open_connections")
			a := b.do("POST", "/v1/chat/completions", chatBody)
			if _, code, _, msg := errorOf(t, a.body); a.status != 429 || code != "overload" ||
				!strings.Contains(msg, "3 connections") || a.header.Get("Retry-After") == "" {
				t.Errorf("%d %s", a.status, a.body)
			}
			b.untilValue(3, "laneway_frontend_open_connections") // it was closed
			b.untilValue(1, "laneway_frontend_refused_connections_total")
			b.untilValue(1, requests, "error_type", "overload")
			idle[0].Close()
			b.untilValue(2, "laneway_frontend_open_connections")
			if a := b.do("POST", "/v1/chat/completions", chatBody); a.status != 200 {
				t.Errorf("after one has left: %d %s", a.status, a.body)
			}
		})
	}
}

// TestFloodOfConnections holds that connections far past the bound are closed at once, and that the bound recovers.
func TestFloodOfConnections(t *testing.T) {
	b := serve(t, playing(newPlay(step{err: io.EOF})), func(c *Config) { c.MaxConnections = 1 })
	const n = connsSpare + 50
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	last := all[n-1]
	last.SetReadDeadline(time.Now().Add(patience))
	if _, err := last.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the last of %d connections is not closed: %v", n, err)
	}
	b.untilValue(1+connsSpare, "laneway_frontend_open_connections")
	b.untilValue(n-1, "laneway_frontend_refused_connections_total")
	for _, c := range all {
		c.Close()
	}
	b.untilValue(0, "laneway_frontend_open_connections")
	if a := b.do("POST", "/v1/chat/completions", chatBody); a.status != 200 {
		t.Errorf("after the flood: %d %s", a.status, a.body)
	}
}

// TestSlowHeaders holds that a connection that does not finish its header, or its handshake, is closed in time, and one
// that is idle too.
func TestSlowHeaders(t *testing.T) {
	for name, begin := range map[string]string{
		"header": "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n", "nothing": "",
		"idle":    "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
		"preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, playing(newPlay()),
				func(c *Config) { c.HeaderTimeout, c.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond })
			c, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, begin)
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Errorf("not closed: %v", err)
			}
			b.untilValue(0, "laneway_frontend_open_connections")
		})
	}
	t.Run("handshake", func(t *testing.T) {
		b := serveProtocol(t, playing(newPlay()), "h2 over TLS",
			func(c *Config) { c.HeaderTimeout = 50 * time.Millisecond })
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("not closed: %v", err)
		}
	})
}

func TestNoHTTP2(t *testing.T) {
	b := serveProtocol(t, playing(newPlay(step{err: io.EOF})), "h2c", func(c *Config) { c.NoHTTP2 = true })
	if resp, err := b.client.Get(b.url + "/v1/models"); err == nil {
		resp.Body.Close()
		t.Errorf("%s is spoken although it is off", resp.Proto)
	}
}
