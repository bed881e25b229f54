package transporttest

import (
	"context"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// patience bounds every wait of the suite. It is long because machines are slow, under -race and beside other work, and
// only a failing test waits for it.
const patience = 3 * time.Minute

// rig is two nodes, one of which listens.
type rig struct {
	dialer, acceptor     transport.Transport
	dialerID, acceptorID transport.NodeID
	ln                   transport.Listener
}

func newRig(t *testing.T, f Factory, endpoints int) *rig {
	t.Helper()
	r := &rig{}
	r.dialer, r.dialerID = node(t, f)
	r.acceptor, r.acceptorID = node(t, f)
	ln, err := r.acceptor.Listen(t.Context(), f.Bind, endpoints)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	r.ln = ln
	return r
}

func node(t *testing.T, f Factory) (transport.Transport, transport.NodeID) {
	t.Helper()
	tr, id := f.New(t)
	t.Cleanup(func() {
		done := make(chan error, 1)
		go func() { done <- tr.Close() }()
		if err, ok := recv(done); !ok {
			t.Errorf("transport Close does not return")
		} else if err != nil {
			t.Errorf("transport Close: %v", err)
		}
	})
	if tr.Plane() != f.Plane {
		t.Fatalf("plane %q, want %q", tr.Plane(), f.Plane)
	}
	return tr, id
}

func (r *rig) request(lane int) transport.DialRequest {
	eps := r.ln.Endpoints()
	return transport.DialRequest{Address: eps[lane%len(eps)].String(), Peer: r.acceptorID, Lane: lane}
}

// lane opens a lane. A plane may show a lane to its acceptor only with its first byte, so the dialler writes one.
func (r *rig) lane(t *testing.T, lane int) (dialled, accepted transport.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dialled, err := r.dialer.Dial(ctx, r.request(lane))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { dialled.Close() })
	if n, err := dialled.Write([]byte{1}); n != 1 || err != nil {
		t.Fatalf("first write: %d, %v", n, err)
	}
	accepted, err = r.ln.Accept(ctx)
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	t.Cleanup(func() { accepted.Close() })
	var b [1]byte
	if _, err := io.ReadFull(accepted, b[:]); err != nil || b[0] != 1 {
		t.Fatalf("first read: %v, %v", b, err)
	}
	return dialled, accepted
}

// recv takes from c, or says false after patience.
func recv[T any](c <-chan T) (T, bool) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-c:
		return v, true
	case <-timer.C:
		var zero T
		return zero, false
	}
}

// must takes from c, or fails the test with all stacks.
func must[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	v, ok := recv(c)
	if !ok {
		buf := make([]byte, 1<<20)
		t.Fatalf("%s did not end within %v\n%s", what, patience, buf[:runtime.Stack(buf, true)])
	}
	return v
}

// result is what an I/O call gave.
type result struct {
	n   int
	sum uint32
	err error
}

// start runs f on a goroutine of its own.
func start(f func() result) <-chan result {
	c := make(chan result, 1)
	go func() { c <- f() }()
	return c
}

// table is hardware-assisted on the usual machines, so that checksums cost little under -race.
var table = crc32.MakeTable(crc32.Castagnoli)

// random gives bytes that differ from place to place.
func random(seed byte) *rand.ChaCha8 { return rand.NewChaCha8([32]byte{seed}) }

// send writes total random bytes in writes of random sizes up to most.
func send(c transport.Conn, seed byte, total, most int) result {
	src, size := random(seed), rand.New(rand.NewPCG(uint64(seed), 1))
	buf := make([]byte, most)
	var r result
	for r.n < total {
		p := buf[:min(1+size.IntN(most), total-r.n)]
		src.Read(p)
		n, err := c.Write(p)
		r.sum = crc32.Update(r.sum, table, p[:n])
		r.n += n
		if err != nil {
			r.err = err
			return r
		}
	}
	return r
}

// drain reads until total bytes came, or to the end if total is negative.
func drain(c transport.Conn, total int) result {
	buf := make([]byte, 64<<10)
	var r result
	for total < 0 || r.n < total {
		p := buf
		if total >= 0 {
			p = buf[:min(len(buf), total-r.n)]
		}
		n, err := c.Read(p)
		r.sum = crc32.Update(r.sum, table, p[:n])
		r.n += n
		if err != nil {
			r.err = err
			return r
		}
	}
	return r
}

// same fails unless what was read is what was written.
func same(t *testing.T, sent, got result) {
	t.Helper()
	if sent.err != nil {
		t.Fatalf("write failed after %d bytes: %v", sent.n, sent.err)
	}
	if got.n != sent.n || got.sum != sent.sum {
		t.Fatalf("read %d bytes (sum %08x, %v), written %d (sum %08x)", got.n, got.sum, got.err, sent.n, sent.sum)
	}
}

// eventually polls until cond is true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
