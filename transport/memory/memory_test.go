package memory

import (
	"bytes"
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lane makes a network of two nodes and one lane.
func lane(t *testing.T, cfg Config) (n *Network, dialled, accepted *Conn) {
	t.Helper()
	n = NewNetwork(cfg)
	a, b := n.Transport(transport.NodeID{1}), n.Transport(transport.NodeID{2})
	ln, err := b.Listen(t.Context(), "mem.local:17", 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Dial(t.Context(), transport.DialRequest{Address: "mem.local:17", Lane: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ln.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = c
	dialled = n.Conns()[0]
	return n, dialled, dialled.Peer()
}

func TestLatencyDelaysEveryByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d, a := lane(t, Config{Latency: 30 * time.Millisecond})
		start := time.Now()
		d.Write([]byte("one"))
		time.Sleep(10 * time.Millisecond)
		d.Write([]byte("two"))
		buf := make([]byte, 8)
		for _, want := range []struct {
			s  string
			at time.Duration
		}{{"one", 30 * time.Millisecond}, {"two", 40 * time.Millisecond}} {
			n, err := a.Read(buf)
			if err != nil || string(buf[:n]) != want.s || time.Since(start) != want.at {
				t.Errorf("read %q after %v (%v), want %q after %v", buf[:n], time.Since(start), err, want.s, want.at)
			}
		}
		// Lowered in mid-run: nothing overtakes.
		d.Write([]byte("slow"))
		d.SetLatency(0)
		d.Write([]byte("fast"))
		if _, err := io.ReadFull(a, buf); err != nil || string(buf) != "slowfast" {
			t.Errorf("read %q, %v", buf, err)
		}
		d.Close()
		a.Close()
	})
}

func TestRateBoundsADirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d, a := lane(t, Config{Buffer: 64 << 10})
		d.SetRate(1 << 20)
		start := time.Now()
		go func() {
			d.Write(make([]byte, 1<<20))
			d.CloseWrite()
		}()
		n, err := io.Copy(io.Discard, a)
		if took := time.Since(start).Round(time.Millisecond); err != nil || n != 1<<20 || took != time.Second {
			t.Errorf("%d bytes in %v, %v; want 1 MiB in 1 s", n, took, err)
		}
		d.Close()
		a.Close()
	})
}

func TestStallHoldsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, a := lane(t, Config{Buffer: 1000})
		n.Stall()
		wrote := make(chan int, 1)
		go func() {
			k, _ := d.Write(make([]byte, 1500))
			d.CloseWrite()
			wrote <- k
		}()
		synctest.Wait()
		if len(wrote) != 0 || d.Queued() != 1000 {
			t.Errorf("a stalled lane took %d bytes, want 1000", d.Queued())
		}
		n.Release()
		got, err := io.ReadAll(a)
		if err != nil || len(got) != 1500 || <-wrote != 1500 {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		d.Close()
		a.Close()
	})
}

func TestCutFailsBothEnds(t *testing.T) {
	n, d, a := lane(t, Config{})
	boom := errors.New("boom")
	d.Write([]byte("lost"))
	n.Cut(boom)
	for _, c := range []*Conn{d, a} {
		if _, err := c.Read(make([]byte, 8)); err != boom {
			t.Errorf("read after a cut: %v", err)
		}
		if _, err := c.Write([]byte("x")); err != boom {
			t.Errorf("write after a cut: %v", err)
		}
		c.Close()
		if _, err := c.Read(make([]byte, 8)); err != transport.ErrClosed {
			t.Errorf("read after close: %v", err)
		}
	}
	if len(n.Conns()) != 0 {
		t.Error("closed lanes are still listed")
	}
}

func TestTryWriteTakesWhatFits(t *testing.T) {
	n := NewNetwork(Config{TryWrite: true, Buffer: 10})
	tr := n.Transport(transport.NodeID{1})
	defer tr.Close()
	ln, err := tr.Listen(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tr.Dial(t.Context(), transport.DialRequest{Address: ln.Endpoints()[0].String()})
	if err != nil {
		t.Fatal(err)
	}
	w, ok := c.(transport.TryWriter)
	if !ok {
		t.Fatal("no TryWrite")
	}
	if k, err := w.TryWrite([]byte("0123456789ab")); k != 10 || err != nil {
		t.Errorf("%d, %v", k, err)
	}
	if k, err := w.TryWrite([]byte("ab")); k != 0 || err != nil {
		t.Errorf("%d, %v", k, err)
	}
	a, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 20)
	if k, _ := a.Read(buf); !bytes.Equal(buf[:k], []byte("0123456789")) {
		t.Errorf("read %q", buf[:k])
	}
	c.Close()
	if _, err := w.TryWrite([]byte("x")); err != transport.ErrClosed {
		t.Errorf("after close: %v", err)
	}
}

func TestRefusedAndSilentAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(Config{})
		tr := n.Transport(transport.NodeID{1})
		tr.Listen(t.Context(), "mem.local:17", 1)
		req := transport.DialRequest{Address: "mem.local:17"}
		n.Refuse(req.Address, nil)
		if _, err := tr.Dial(t.Context(), req); !errors.Is(err, ErrRefused) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("refused: %v", err)
		}
		nobody := transport.DialRequest{Address: "mem.local:18"}
		if _, err := tr.Dial(t.Context(), nobody); !errors.Is(err, ErrRefused) ||
			!errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("nobody listens: %v", err)
		}
		n.Silence(req.Address)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := tr.Dial(ctx, req); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("silent: %v after %v", err, time.Since(start))
		}
		n.Allow(req.Address)
		if _, err := tr.Dial(t.Context(), req); err != nil {
			t.Errorf("allowed: %v", err)
		}
		tr.Close()
	})
}
