package frontend

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const eventWrites = "laneway_frontend_event_writes_total"

// bySink is how many writes were made by sinks.
func (b *bench) bySink() float64 {
	return b.value(eventWrites, "path", "inline") + b.value(eventWrites, "path", "io_uring")
}

// byID serves each request with the stream that a test made for its id.
func byID(t *testing.T, edit func(*Config), streams map[string]*sinkPlay) *bench {
	b := serve(t, &scripted{}, edit)
	b.backend.open = func(_ context.Context, c Call) (Stream, error) {
		if asPasses {
			return &passPlay{sinkPlay: streams[c.ClientID]}, nil
		}
		return streams[c.ClientID], nil
	}
	return b
}

// started is a stream whose first record is there.
func started() *sinkPlay {
	s := byHand(newPlay())
	s.deliver(step{recs: []string{"first"}})
	return s
}

// dial sends a streaming request and returns the connection with nothing read of it.
func (b *bench) dial(id string) net.Conn {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(3 * patience))
	fmt.Fprintf(conn,
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s", id,
		len(chatStream), chatStream)
	return conn
}

// untilParked waits until the sink has the stream: its goroutine has written the first record and waits.
func (s *sinkPlay) untilParked(t *testing.T, b *bench) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		ok := s.sink != nil && !s.pulled && len(s.ready) == 0
		s.mu.Unlock()
		if ok && b.value(eventWrites, "path", "pull") > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the sink never has the stream")
		}
	}
}

// contents reads a stream to its end and checks that its texts are the wanted ones, each once and in order.
func contents(t *testing.T, body io.Reader, want func(i int) string, n int) {
	t.Helper()
	sc := bufio.NewScanner(body)
	sc.Buffer(nil, 1<<20)
	i := 0
	for sc.Scan() {
		line := sc.Text()
		if !strings.Contains(line, `"delta":{"content":`) {
			continue
		}
		if i >= n || !strings.Contains(line, `"content":"`+want(i)+`"`) {
			t.Errorf("event %d is %.200s", i, line)
			return
		}
		i++
	}
	if i != n || sc.Err() != nil {
		t.Errorf("%d events of %d, %v", i, n, sc.Err())
	}
}

// TestStalledClientDelaysNobody has one goroutine, as a lane's reader, bring records to a client that reads nothing and
// to one that does.
func TestStalledClientDelaysNobody(t *testing.T) {
	const rounds = 1000
	stalled, good := started(), started()
	// a write timeout longer than the test may take
	b := byID(t, nil, map[string]*sinkPlay{"stalled": stalled, "good": good})
	b.dial("stalled").(*net.TCPConn).SetReadBuffer(4096)
	resp, err := http.ReadResponse(bufio.NewReader(b.dial("good")), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	good.untilParked(t, b)
	stalled.untilParked(t, b)
	burst := step{recs: make([]string, 32)}
	for i := range burst.recs {
		burst.recs[i] = strings.Repeat("x", 100)
	}
	var lane sync.WaitGroup
	begin := time.Now()
	lane.Go(func() {
		for i := range rounds {
			stalled.deliver(burst)
			good.deliver(step{recs: []string{fmt.Sprint(" ", i)}})
		}
		good.deliver(step{err: io.EOF})
	})
	contents(t, resp.Body, func(i int) string {
		if i == 0 {
			return "first"
		}
		return fmt.Sprint(" ", i-1)
	}, rounds+1)
	lane.Wait()
	if took := time.Since(begin); took > b.cfg.WriteTimeout/2 {
		t.Errorf("it took %v: the lane has waited for the stalled client", took)
	}
	stalled.mu.Lock()
	waits := len(stalled.ready)
	stalled.mu.Unlock()
	if waits == 0 {
		t.Error("nothing waits for the stalled client: it was not stalled, or its bytes are held without bound")
	}
	if b.bySink() < rounds/2 {
		t.Errorf("%v writes were inline", b.bySink())
	}
	b.Close()
}

func TestClientThatTakesNothingIsCut(t *testing.T) {
	s := started()
	b := byID(t, func(c *Config) { c.WriteTimeout = 50 * time.Millisecond }, map[string]*sinkPlay{"stalled": s})
	b.dial("stalled").(*net.TCPConn).SetReadBuffer(4096)
	s.untilParked(t, b)
	big := step{recs: []string{strings.Repeat("x", inlineRecord)}}
	for end := time.Now().Add(patience); ; {
		select {
		case <-s.shut:
		default:
			if time.Now().After(end) {
				t.Fatal("the stalled client's response goes on")
			}
			s.deliver(big)
			continue
		}
		break
	}
	s.waitFor(t, "killed", s.killed)
	b.goneOnce()
	b.untilValue(1, "laneway_frontend_slow_clients_total")
}

// TestSlowClientGetsEverything alternates between writes of the sink and of the request's goroutine: nothing is lost,
// doubled or out of order.
func TestSlowClientGetsEverything(t *testing.T) {
	const n = 20000
	s := started()
	b := byID(t, nil, map[string]*sinkPlay{"slow": s})
	conn := b.dial("slow")
	conn.(*net.TCPConn).SetReadBuffer(32 << 10)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.untilParked(t, b)
	text := func(i int) string {
		switch {
		case i == 0:
			return "first"
		case i%997 == 0: // too large for a sink
			return fmt.Sprint(i, strings.Repeat("y", 2*inlineRecord))
		}
		return fmt.Sprint(i, strings.Repeat("x", i%500))
	}
	var lane sync.WaitGroup
	defer lane.Wait()
	lane.Go(func() {
		for i := 1; i < n; {
			var r step
			for k := 1 + rand.IntN(200); k > 0 && i < n; k-- {
				r.recs = append(r.recs, text(i))
				i++
			}
			s.deliver(r)
			s.window()
		}
		s.deliver(step{err: io.EOF})
	})
	contents(t, &dozing{Reader: resp.Body}, text, n)
	if in, pull := b.bySink(), b.value(eventWrites, "path", "pull"); in < 2 || pull < 2 {
		t.Errorf("%v writes inline, %v pulled: one of the ways was not taken", in, pull)
	}
}

// dozing is a reader that stops now and then for as long as the kernel's buffers need to fill.
type dozing struct {
	io.Reader
	reads int
}

func (d *dozing) Read(p []byte) (int, error) {
	if d.reads++; d.reads%150 == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	return d.Reader.Read(p)
}

// TestHandlerReturnMeetsSink has clients leave, workers end and the server close while sinks are being called.
func TestHandlerReturnMeetsSink(t *testing.T) {
	for _, how := range []string{"leave", "complete", "kill", "cut"} {
		t.Run(how, func(t *testing.T) {
			const n = 24
			streams := map[string]*sinkPlay{}
			begun := make([]chan struct{}, n) // a client has read something
			for i := range n {
				streams[fmt.Sprint(i)], begun[i] = started(), make(chan struct{})
			}
			b := byID(t, func(c *Config) { c.KeepAlive = 2 * time.Millisecond }, streams)
			var lanes, clients sync.WaitGroup
			stop := make(chan struct{})
			for i := range n {
				s := streams[fmt.Sprint(i)]
				conn := b.dial(fmt.Sprint(i))
				clients.Go(func() {
					buf := make([]byte, 4096)
					conn.Read(buf)
					close(begun[i])
					if how != "leave" {
						io.Copy(io.Discard, conn)
						return
					}
					for range i {
						conn.Read(buf)
					}
					conn.Close()
				})
				lanes.Go(func() {
					<-begun[i]
					for k := 0; ; k++ {
						select {
						case <-stop:
							return
						case <-s.shut:
							return
						default:
						}
						switch {
						case how == "complete" && k == 10*i:
							s.deliver(step{err: io.EOF})
						case how == "kill" && k == 10*i:
							s.Kill()
						}
						s.deliver(step{recs: []string{"x", "y"}})
						s.window()
					}
				})
			}
			if how == "cut" {
				for i := range n { // a request that comes later would be refused
					<-begun[i]
				}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				if cut, err := b.Drain(ctx); cut == 0 || err != nil {
					t.Errorf("cut %d, %v", cut, err)
				}
				cancel()
			}
			for _, s := range streams {
				s.waitFor(t, "closed", s.shut)
			}
			close(stop)
			lanes.Wait()
			b.Close()
			clients.Wait()
			b.untilOpen(0)
			b.untilValue(n, requests)
		})
	}
}

// TestInlineOverTLS holds that a sink writes through TLS too, and that HTTP/2 over the same connections is pulled.
func TestInlineOverTLS(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			s := started()
			server, err := New(Config{Backend: &scripted{models: []string{"m"},
				open: func(context.Context, Call) (Stream, error) { return s, nil }}})
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			cfg := &tls.Config{Certificates: cert.TLS.Certificates, NextProtos: []string{"http/1.1"}}
			tr := cert.Client().Transport.(*http.Transport).Clone()
			tr.ForceAttemptHTTP2 = proto == "HTTP/2.0"
			if tr.ForceAttemptHTTP2 {
				cfg.NextProtos = []string{"h2"}
			}
			served := make(chan error, 1)
			go func() { served <- server.Serve(tls.NewListener(server.wrap(l), cfg)) }()
			defer func() {
				tr.CloseIdleConnections()
				server.Close()
				if err := <-served; err != nil {
					t.Error(err)
				}
			}()
			resp, err := (&http.Client{Transport: tr, Timeout: 2 * patience}).Post("https://"+l.Addr().String()+
				"/v1/chat/completions", "application/json", strings.NewReader(chatStream))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.Proto != proto {
				t.Fatalf("%s, want %s", resp.Proto, proto)
			}
			const n = 2000
			var lane sync.WaitGroup
			defer lane.Wait()
			lane.Go(func() {
				for i := 1; i < n; i++ {
					s.deliver(step{recs: []string{fmt.Sprint(" ", i)}})
				}
				s.deliver(step{err: io.EOF})
			})
			contents(t, resp.Body, func(i int) string {
				if i == 0 {
					return "first"
				}
				return fmt.Sprint(" ", i)
			}, n)
			if got := s.sink != nil; got != (proto == "HTTP/1.1") {
				t.Errorf("a sink is set: %v", got)
			}
		})
	}
}

// TestPasses runs the tests of this file with streams whose sinks are called in passes.
func TestPasses(t *testing.T) {
	needRing(t)
	asPasses = true
	defer func() { asPasses = false }()
	t.Run("stalled", TestStalledClientDelaysNobody)
	t.Run("takes nothing", TestClientThatTakesNothingIsCut)
	t.Run("slow", TestSlowClientGetsEverything)
	t.Run("handler meets sink", TestHandlerReturnMeetsSink)
	t.Run("TLS", TestInlineOverTLS)
}

// TestOnePassManyStreams has the sinks of many streams called in one pass: the clients that read get everything in
// order, the one that stalls and those that leave disturb nobody.
func TestOnePassManyStreams(t *testing.T) {
	needRing(t)
	const n, rounds = 300, 80 // more than one submission holds
	streams := map[string]*sinkPlay{}
	var order []*sinkPlay
	for i := range n {
		s := started()
		streams[fmt.Sprint(i)], order = s, append(order, s)
	}
	b := byID(t, nil, streams)
	pass := new(readPass)
	b.backend.open = func(_ context.Context, c Call) (Stream,
		error) {
		return &passPlay{streams[c.ClientID], pass}, nil
	}
	var clients sync.WaitGroup
	begun := make(chan struct{}, n)
	for i := range n {
		conn := b.dial(fmt.Sprint(i))
		clients.Go(func() {
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			begun <- struct{}{}
			switch {
			case err != nil:
				t.Error(err)
			case i == 7: // stalls
			case i%10 == 3:
				conn.Close()
			default:
				contents(t, resp.Body, func(k int) string {
					if k == 0 {
						return "first"
					}
					return fmt.Sprint(" ", i, "-", k-1)
				}, rounds+1)
			}
		})
	}
	for range n {
		<-begun
	}
	for k := range rounds {
		for i, s := range order {
			r := step{recs: []string{fmt.Sprint(" ", i, "-", k)}}
			if i == 7 {
				r.recs[0] = strings.Repeat("x", inlineRecord)
				for range 20 {
					r.recs = append(r.recs, r.recs[0])
				}
			}
			s.deliver(r)
		}
		pass.end()
	}
	for _, s := range order {
		s.deliver(step{err: io.EOF})
	}
	pass.end()
	clients.Wait()
	b.Close()
	if got := b.value(eventWrites, "path", "io_uring"); got < rounds*n/4 {
		t.Errorf("%v inline writes", got)
	}
}

func TestOutPathPull(t *testing.T) {
	asSinks = true
	defer func() { asSinks = false }()
	p := newPlay(step{recs: []string{"a"}}, step{recs: []string{"b"}}, step{err: io.EOF})
	b := serve(t, playing(p), func(c *Config) { c.OutPath = OutPull })
	if a := b.do("POST", "/v1/chat/completions", chatStream); !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Error(a.body)
	}
	if n := b.bySink(); n != 0 {
		t.Errorf("%v inline writes", n)
	}
	if err := (Config{Backend: b.backend, OutPath: "fast"}).Validate(); err == nil || !strings.Contains(err.Error(),
		`"fast"`) || !strings.Contains(err.Error(), `"pull"`) {
		t.Error(err)
	}
}

// TestInlineWritesDoNotAllocate holds that events that a sink writes cost no allocation.
func TestInlineWritesDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	s := started()
	b := byID(t, nil, map[string]*sinkPlay{"a": s})
	conn := b.dial("a")
	var reader sync.WaitGroup
	reader.Go(func() { io.Copy(io.Discard, conn) })
	s.untilParked(t, b)
	recs := [][]byte{[]byte(" token")}
	n := testing.AllocsPerRun(200, func() { s.sink(recs, nil) })
	if n > 1 { // others' in the meantime, and pools that a collection emptied
		t.Errorf("%v allocations an event", n)
	}
	b.Close()
	reader.Wait()
}
