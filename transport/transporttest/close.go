package transporttest

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/laneway-ai/laneway/transport"
)

func testHalfClose(t *testing.T, from, to transport.Conn) {
	const total = 300_000
	sent := start(func() result {
		r := send(from, 1, total, 10_000)
		if err := from.CloseWrite(); err != nil {
			r.err = err
		}
		return r
	})
	got := must(t, start(func() result { return drain(to, -1) }), "reading")
	if got.err != io.EOF {
		t.Errorf("read ended with %v, want io.EOF", got.err)
	}
	same(t, must(t, sent, "writing"), got)
	if n, err := to.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("second read at the end: %d, %v", n, err)
	}
	if n, err := from.Write([]byte("x")); n != 0 || err == nil {
		t.Errorf("a write after CloseWrite took %d bytes", n)
	}
	if err := from.CloseWrite(); err != nil {
		t.Errorf("second CloseWrite: %v", err)
	}
	// The other direction goes on.
	back := start(func() result { return send(to, 2, total, 10_000) })
	got = must(t, start(func() result { return drain(from, total) }), "reading back")
	same(t, must(t, back, "writing back"), got)
	if err := to.CloseWrite(); err != nil {
		t.Errorf("CloseWrite of the other end: %v", err)
	}
	if r := must(t, start(func() result { return drain(from, -1) }), "reading to the end"); r.n != 0 ||
		r.err != io.EOF {
		t.Errorf("%d bytes and %v after the other end's CloseWrite, want io.EOF", r.n, r.err)
	}
}

func testHalfCloseMidWrite(t *testing.T, from, to transport.Conn) {
	const total = 8 << 20
	begun := make(chan struct{})
	sent := start(func() result {
		p := make([]byte, total)
		random(7).Read(p)
		close(begun)
		n, err := from.Write(p)
		return result{n: n, sum: crc(p[:n]), err: err}
	})
	<-begun
	first := must(t, start(func() result { return drain(to, 1) }), "the first byte") // so the write has begun
	if err := from.CloseWrite(); err != nil {
		t.Fatalf("CloseWrite: %v", err)
	}
	rest := make(chan result, 1)
	go func() {
		buf := make([]byte, 64<<10)
		r := first
		for r.err == nil {
			var n int
			n, r.err = to.Read(buf)
			r.n, r.sum = r.n+n, update(r.sum, buf[:n])
		}
		rest <- r
	}()
	got := must(t, rest, "reading")
	if got.err != io.EOF {
		t.Errorf("read ended with %v, want io.EOF", got.err)
	}
	same(t, must(t, sent, "writing"), got)
}

func testLocalCloseRead(t *testing.T, from, to transport.Conn) {
	read := start(func() result { return drain(to, -1) })
	if err := to.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if r := must(t, read, "a read on a closed lane"); !errors.Is(r.err, transport.ErrClosed) {
		t.Errorf("read ended with %v, want ErrClosed", r.err)
	}
	if _, err := to.Read(make([]byte, 1)); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("read after Close: %v, want ErrClosed", err)
	}
	if _, err := to.Write([]byte("x")); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("write after Close: %v, want ErrClosed", err)
	}
	if err := to.CloseWrite(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("CloseWrite after Close: %v, want ErrClosed", err)
	}
}

func testLocalCloseWrite(t *testing.T, from, to transport.Conn) {
	done := blocked(t, from, new(atomic.Bool))
	if err := from.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if r := must(t, done, "a write on a closed lane"); !errors.Is(r.err, transport.ErrClosed) {
		t.Errorf("write ended with %v, want ErrClosed", r.err)
	}
}

// wantRemote says that err is what a lane gives after its peer has aborted it.
func wantRemote(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || err == io.EOF || errors.Is(err, transport.ErrClosed) {
		t.Errorf("%s after the peer's Close ended with %v, want an error that is neither io.EOF nor ErrClosed", what,
			err)
	}
}

func testRemoteCloseRead(t *testing.T, from, to transport.Conn) {
	read := start(func() result { return drain(to, -1) })
	from.Close()
	wantRemote(t, "a read", must(t, read, "a read on a lane that the peer closed").err)
}

func testRemoteCloseWrite(t *testing.T, from, to transport.Conn) {
	done := blocked(t, from, new(atomic.Bool))
	to.Close()
	wantRemote(t, "a write", must(t, done, "a write on a lane that the peer closed").err)
}

func testCloseConcurrent(t *testing.T, from, to transport.Conn) {
	write := start(func() result { return send(from, 1, 1<<30, 50_000) })
	read := start(func() result { return drain(to, -1) })
	var wg sync.WaitGroup
	for range 8 {
		for _, c := range []transport.Conn{from, to} {
			wg.Go(func() { c.Info(); c.CloseWrite() })
			wg.Go(func() {
				if err := c.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				c.Info()
			})
		}
	}
	closed := make(chan struct{})
	go func() { wg.Wait(); close(closed) }()
	must(t, closed, "concurrent closes")
	if r := must(t, write, "the write"); r.err == nil {
		t.Error("the write did not fail")
	}
	if r := must(t, read, "the read"); r.err == nil {
		t.Error("the read did not fail")
	}
	if err := from.Close(); err != nil {
		t.Errorf("one more close: %v", err)
	}
}

func testTransportClose(t *testing.T, f Factory) {
	for _, side := range []string{"dialler", "acceptor"} {
		t.Run(side, func(t *testing.T) {
			r := newRig(t, f, 2)
			d, a := r.lane(t, 1)
			mine, theirs, tr := d, a, r.dialer
			if side == "acceptor" {
				mine, theirs, tr = a, d, r.acceptor
			}
			read := start(func() result { return drain(mine, -1) })
			far := start(func() result { return drain(theirs, -1) })
			accept := make(chan error, 1)
			go func() {
				_, err := r.ln.Accept(t.Context())
				accept <- err
			}()
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if err := tr.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
			}
			closed := make(chan struct{})
			go func() { wg.Wait(); close(closed) }()
			must(t, closed, "Close")
			if res := must(t, read, "the read"); !errors.Is(res.err, transport.ErrClosed) {
				t.Errorf("read ended with %v, want ErrClosed", res.err)
			}
			wantRemote(t, "the peer's read", must(t, far, "the peer's read").err)
			if _, err := tr.Dial(t.Context(), r.request(0)); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("dial on a closed transport: %v, want ErrClosed", err)
			}
			if _, err := tr.Listen(t.Context(), f.Bind, 1); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("listen on a closed transport: %v, want ErrClosed", err)
			}
			if s := tr.Sockets(); len(s) != 0 {
				t.Errorf("a closed transport has sockets: %+v", s)
			}
			if side == "dialler" {
				r.ln.Close()
			}
			if err := must(t, accept, "Accept"); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("accept: %v, want ErrClosed", err)
			}
		})
	}
}

func testListenerClose(t *testing.T, f Factory) {
	r := newRig(t, f, 2)
	accept := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := r.ln.Accept(t.Context())
			accept <- err
		}()
	}
	for range 2 {
		if err := r.ln.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for range 3 {
		if err := must(t, accept, "Accept"); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("accept: %v, want ErrClosed", err)
		}
	}
	if _, err := r.ln.Accept(t.Context()); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("accept after Close: %v, want ErrClosed", err)
	}
}

func testAcceptContext(t *testing.T, f Factory) {
	r := newRig(t, f, 1)
	ctx, cancel := context.WithCancel(t.Context())
	accept := make(chan error, 1)
	go func() {
		_, err := r.ln.Accept(ctx)
		accept <- err
	}()
	cancel()
	if err := must(t, accept, "Accept"); !errors.Is(err, context.Canceled) {
		t.Errorf("accept: %v, want context.Canceled", err)
	}
	r.lane(t, 0) // the listener goes on
}

func testLanesAfterListenerClose(t *testing.T, f Factory) {
	r := newRig(t, f, 1)
	d, a := r.lane(t, 0)
	if err := r.ln.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if f.ListenerOwnsLanes {
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("read on a lane whose listener was closed: %v, want ErrClosed", err)
		}
		wantRemote(t, "the dialler's read", must(t, start(func() result { return drain(d, -1) }),
			"the dialler's read").err)
		return
	}
	sent := start(func() result { return send(a, 1, 100_000, 1000) })
	got := must(t, start(func() result { return drain(d, 100_000) }), "reading")
	same(t, must(t, sent, "writing"), got)
}
