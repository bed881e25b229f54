package transporttest

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

func testEcho(t *testing.T, f Factory) {
	r := newRig(t, f, 1)
	d, a := r.lane(t, 5)
	for _, msg := range []string{"a", "hello", "the quick brown fox"} {
		for _, ends := range [][2]transport.Conn{{d, a}, {a, d}} {
			if n, err := ends[0].Write([]byte(msg)); n != len(msg) || err != nil {
				t.Fatalf("write: %d, %v", n, err)
			}
			buf := make([]byte, len(msg))
			if _, err := io.ReadFull(ends[1], buf); err != nil || string(buf) != msg {
				t.Fatalf("read %q, %v; want %q", buf, err, msg)
			}
		}
	}
	if n, err := d.Write(nil); n != 0 || err != nil {
		t.Errorf("empty write: %d, %v", n, err)
	}
	if n, err := a.Read(nil); n != 0 || err != nil {
		t.Errorf("empty read: %d, %v", n, err)
	}
	di, ai := d.Info(), a.Info()
	if di.Plane != f.Plane || ai.Plane != f.Plane {
		t.Errorf("planes %q and %q", di.Plane, ai.Plane)
	}
	if di.Lane != 5 || ai.Lane != -1 {
		t.Errorf("lanes %d and %d, want 5 and -1", di.Lane, ai.Lane)
	}
	if want := r.ln.Endpoints()[0].String(); di.Remote.String() != want || ai.Local.String() != want {
		t.Errorf("addresses %v and %v, want %s", di.Remote, ai.Local, want)
	}
	if di.Local.String() != ai.Remote.String() {
		t.Errorf("the dialler is at %v, its acceptor sees %v", di.Local, ai.Remote)
	}
}

func testOrder(t *testing.T, from, to transport.Conn) {
	for i, most := range []int{100, 5000, 200_000} {
		total := []int{50_000, 2 << 20, 4 << 20}[i]
		sent := start(func() result { return send(from, byte(i), total, most) })
		got := must(t, start(func() result { return drain(to, total) }), "reading")
		same(t, must(t, sent, "writing"), got)
	}
}

func testLargeWrite(t *testing.T, from, to transport.Conn) {
	const size = 16 << 20
	sent := start(func() result {
		p := make([]byte, size)
		random(9).Read(p)
		n, err := from.Write(p)
		return result{n: n, sum: crc(p[:n]), err: err}
	})
	got := must(t, start(func() result { return drain(to, size) }), "reading")
	same(t, must(t, sent, "writing"), got)
}

func testDuplex(t *testing.T, f Factory) {
	d, a := newRig(t, f, 1).lane(t, 0)
	const total = 4 << 20
	s1 := start(func() result { return send(d, 1, total, 100_000) })
	s2 := start(func() result { return send(a, 2, total, 100_000) })
	g1 := start(func() result { return drain(a, total) })
	g2 := start(func() result { return drain(d, total) })
	same(t, must(t, s1, "writing"), must(t, g1, "reading"))
	same(t, must(t, s2, "writing"), must(t, g2, "reading"))
}

// blocked writes until the lane takes no more for a while and gives the sum of what was taken so far. That "a while"
// may be too short on a slow machine makes the test milder, it cannot make it fail.
func blocked(t *testing.T, from transport.Conn, stop *atomic.Bool) <-chan result {
	t.Helper()
	const endless = 256 << 20 // no lane holds that much
	var taken atomic.Int64
	done := start(func() result {
		src, buf := random(3), make([]byte, 64<<10)
		var r result
		for r.n < endless && !stop.Load() {
			src.Read(buf)
			n, err := from.Write(buf)
			r.sum, r.n, r.err = update(r.sum, buf[:n]), r.n+n, err
			taken.Add(int64(n))
			if err != nil {
				break
			}
		}
		return r
	})
	const quiet = 100 * time.Millisecond
	last, since := int64(-1), time.Now()
	eventually(t, "a lane whose peer does not read takes bytes without end", func() bool {
		if now := taken.Load(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > quiet
	})
	if last >= endless {
		t.Fatalf("a lane whose peer does not read took %d bytes", last)
	}
	return done
}

func testBackpressure(t *testing.T, from, to transport.Conn) {
	var stop atomic.Bool
	done := blocked(t, from, &stop)
	stop.Store(true)
	// The reader goes on: nothing was lost.
	got := start(func() result { return drain(to, -1) })
	sent := must(t, done, "the blocked write")
	if err := from.CloseWrite(); err != nil {
		t.Fatalf("CloseWrite: %v", err)
	}
	r := must(t, got, "reading")
	if r.err != io.EOF {
		t.Errorf("read ended with %v, want io.EOF", r.err)
	}
	same(t, sent, r)
}

func testTryWrite(t *testing.T, f Factory) {
	d, a := newRig(t, f, 1).lane(t, 0)
	w, ok := d.(transport.TryWriter)
	if !ok {
		t.Skipf("lanes of plane %s have no TryWrite", f.Plane)
	}
	src, buf := random(4), make([]byte, 60_000)
	var sent result
	for full := 0; full < 3; {
		if sent.n > 256<<20 {
			t.Fatalf("TryWrite took %d bytes that nobody reads", sent.n)
		}
		src.Read(buf)
		n, err := w.TryWrite(buf)
		sent.n, sent.sum = sent.n+n, update(sent.sum, buf[:n])
		if err != nil {
			t.Fatalf("TryWrite: %v", err)
		}
		if n < len(buf) {
			full++
		}
	}
	// A blocking write goes after what TryWrite has taken.
	rest := start(func() result { n, err := d.Write(buf); return result{n: n, err: err} })
	got := must(t, start(func() result { return drain(a, sent.n+len(buf)) }), "reading")
	if r := must(t, rest, "writing"); r.err != nil || r.n != len(buf) {
		t.Fatalf("write after TryWrite: %d, %v", r.n, r.err)
	}
	sent.n, sent.sum = sent.n+len(buf), update(sent.sum, buf)
	same(t, sent, got)
	a.Close()
	eventually(t, "TryWrite to a closed peer fails", func() bool { _, err := w.TryWrite(buf); return err != nil })
}
