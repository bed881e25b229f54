package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/transport"
)

func option(t *testing.T, c *net.TCPConn, level, name int) int {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var v int
	var oerr error
	if err := raw.Control(func(fd uintptr) { v, oerr = unix.GetsockoptInt(int(fd), level, name) }); err != nil ||
		oerr != nil {
		t.Fatal(err, oerr)
	}
	return v
}

// inner is the conn inside what the transport hands out.
func inner(c transport.Conn) *conn {
	if c, ok := c.(tryConn); ok {
		return c.conn
	}
	return c.(*conn)
}

func TestSocketOptionsOnBothEnds(t *testing.T) {
	for _, c := range []struct {
		cfg         Config
		lowat, recv int
	}{
		{Config{}, DefaultNotSentLowat, 0},
		{Config{TLS: true, NotSentLowat: 16 << 10}, 16 << 10, 0},
		{Config{RecvBuffer: 50_000, SendBuffer: 60_000, NotSentLowat: -1}, 0, 50_000},
	} {
		tr, _ := node(t, c.cfg)
		defer tr.Close()
		ln, err := tr.Listen(t.Context(), "127.0.0.1:0", 1)
		if err != nil {
			t.Fatal(err)
		}
		d, err := tr.Dial(t.Context(), transport.DialRequest{Address: ln.Endpoints()[0].String()})
		if err != nil {
			t.Fatal(err)
		}
		a, err := ln.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []transport.Conn{d, a} {
			raw := inner(end).raw
			if v := option(t, raw, unix.IPPROTO_TCP, unix.TCP_NODELAY); v == 0 {
				t.Error("TCP_NODELAY is off")
			}
			if v := option(t, raw, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT); c.lowat != 0 && v != c.lowat {
				t.Errorf("TCP_NOTSENT_LOWAT is %d, want %d", v, c.lowat)
			}
			if v := option(t, raw, unix.SOL_SOCKET, unix.SO_PROTOCOL); v != unix.IPPROTO_TCP {
				t.Errorf("protocol %d, want plain TCP", v)
			}
			if v := option(t, raw, unix.SOL_SOCKET, unix.SO_RCVBUF); c.recv != 0 && v != 2*c.recv {
				t.Errorf("SO_RCVBUF is %d, want %d", v, 2*c.recv)
			}
		}
		for _, s := range tr.Sockets() {
			if c.recv != 0 && (s.RecvAsked != 50_000 || s.RecvGranted != 100_000 || s.SendAsked != 60_000 ||
				s.SendGranted != 120_000) {
				t.Errorf("socket %+v", s)
			}
		}
	}
}

// full is an accepter without descriptors for a while.
type full struct {
	*net.TCPListener
	mu     sync.Mutex
	errors []error
}

func (f *full) AcceptTCP() (*net.TCPConn, error) {
	f.mu.Lock()
	var err error
	if len(f.errors) > 0 {
		err, f.errors = f.errors[0], f.errors[1:]
	}
	f.mu.Unlock()
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	}
	return f.TCPListener.AcceptTCP()
}

func TestAcceptGoesOnAfterErrorsAndLogsOnce(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	var mu sync.Mutex
	var out bytes.Buffer
	tr, err := New(Config{Logger: slog.New(slog.NewTextHandler(lockedWriter{&mu, &out}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := &full{TCPListener: l, errors: []error{syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS}}
	ln := &listener{t: tr, endpoints: []*net.TCPListener{l}, ready: make(chan *conn)}
	ln.ctx, ln.cancel = context.WithCancel(tr.ctx)
	ln.wg.Go(func() { ln.loop(f) })
	defer ln.Close()
	d, err := tr.Dial(t.Context(), transport.DialRequest{Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	a, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	mu.Lock()
	defer mu.Unlock()
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 ||
		!strings.Contains(lines[0], "too many open files") || !strings.Contains(lines[1], "again") {
		t.Errorf("the log says:\n%s", out.String())
	}
	if n := tr.Counters().AcceptErrors; n != 4 {
		t.Errorf("%d accept errors are counted, want 4", n)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// Peers that say nothing, or nonsense, hold up nobody and are dropped.
func TestBadHandshakesHoldUpNobody(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	id, _ := transport.NewIdentity()
	tr, err := New(Config{TLS: true, Identity: id, HandshakeTimeout: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	ln, err := tr.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Endpoints()[0].String()
	var bad []net.Conn
	for i := range 20 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		}
		bad = append(bad, c)
	}
	client, _ := node(t, Config{TLS: true})
	defer client.Close()
	d, err := client.Dial(t.Context(), transport.DialRequest{Address: addr, Peer: id.ID})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	a, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, c := range bad {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Fatalf("a silent peer is not dropped: %v", err)
		}
	}
	for deadline := time.Now().Add(time.Minute); tr.Counters().AcceptErrors != 20; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d accept errors are counted, want 20", tr.Counters().AcceptErrors)
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// A plain endpoint that answers a TLS dial, and the other way round, give an error, not a lane.
func TestPlaneMismatch(t *testing.T) {
	plain, _ := node(t, Config{})
	defer plain.Close()
	ln, err := plain.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	secure, _ := node(t, Config{TLS: true})
	defer secure.Close()
	result := make(chan error, 1)
	addr := ln.Endpoints()[0].String()
	go func() {
		_, err := secure.Dial(t.Context(), transport.DialRequest{Address: addr})
		result <- err
	}()
	a, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.Write([]byte("not a TLS record"))
	if err := <-result; err == nil || !strings.Contains(err.Error(), "TLS handshake") || !strings.Contains(err.Error(),
		addr) {
		t.Errorf("dial: %v", err)
	}
	a.Close()
}

func TestConfigComplaints(t *testing.T) {
	_, err := New(Config{TLS: true, RecvBuffer: -1, SendBuffer: 1 << 31, NotSentLowat: -2, HandshakeTimeout: -1})
	if err == nil {
		t.Fatal("no complaint")
	}
	for _, want := range []string{"Identity", "receive buffer of -1", "send buffer of 2147483648",
		"NOTSENT_LOWAT of -2", "handshake timeout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestWritesAllocateNothing(t *testing.T) {
	tr, _ := node(t, Config{})
	defer tr.Close()
	ln, err := tr.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	d, err := tr.Dial(t.Context(), transport.DialRequest{Address: ln.Endpoints()[0].String()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := d.(transport.TryWriter)
	const size = 8 << 10
	p, q := make([]byte, size), make([]byte, size)
	for name, write := range map[string]func(bufs [][]byte) (int, error){
		"TryWrite":        func([][]byte) (int, error) { return w.TryWrite(p) },
		"TryWriteBuffers": w.TryWriteBuffers,
		"WriteBuffers":    func(bufs [][]byte) (int, error) { return size, d.WriteBuffers(bufs) },
	} {
		for _, count := range []int{1, 2, 200, 2 * maxSegments} {
			var bufs [][]byte
			for b := range slices.Chunk(p, size/count) {
				bufs = append(bufs, b)
			}
			if n := testing.AllocsPerRun(200, func() {
				if n, err := write(bufs); n != len(p) || err != nil {
					t.Fatal(n, err)
				}
				if _, err := io.ReadFull(a, q); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s of %d segments and a Read allocate %v times", name, count, n)
			}
		}
	}
}

// What a lane has written is not kept by it.
func TestSegmentsAreLetGo(t *testing.T) {
	tr, _ := node(t, Config{})
	defer tr.Close()
	ln, err := tr.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	d, err := tr.Dial(t.Context(), transport.DialRequest{Address: ln.Endpoints()[0].String()})
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{200, 3} {
		bufs := make([][]byte, count)
		for i := range bufs {
			bufs[i] = make([]byte, 10)
		}
		if err := d.WriteBuffers(bufs); err != nil {
			t.Fatal(err)
		}
		out := &inner(d).out
		if out.rest != nil || out.one[0] != nil {
			t.Error("the lane keeps the segments")
		}
		for _, v := range out.iovs[:cap(out.iovs)] {
			if v.Base != nil {
				t.Fatal("the lane keeps a segment")
			}
		}
	}
}
