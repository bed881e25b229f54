package transporttest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/laneway-ai/laneway/transport"
)

// maxCut is how many segments cut makes of a write, at most.
const maxCut = 200

// segments is a lane that writes with WriteBuffers: what a test gives to Write is cut at random places.
type segments struct {
	transport.Conn
	t    *testing.T
	rand *rand.Rand // of the writer
}

// Write implements transport.Conn. It overwrites what it has written, which must not reach the peer.
func (s segments) Write(p []byte) (int, error) {
	bufs := cut(s.rand, p)
	err := kept(s.t, bufs, s.WriteBuffers)
	for _, b := range bufs {
		clear(b)
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// segmented runs a test for both directions with writes of segments.
func segmented(run func(t *testing.T, from, to transport.Conn)) func(*testing.T, Factory) {
	return each(func(t *testing.T, from, to transport.Conn) {
		wrap := func(c transport.Conn, seed uint64) transport.Conn {
			return segments{Conn: c, t: t, rand: rand.New(rand.NewPCG(seed, 2))}
		}
		run(t, wrap(from, 1), wrap(to, 2))
	})
}

// cut copies p into 1 to maxCut segments. Some are empty.
func cut(r *rand.Rand, p []byte) [][]byte {
	at := []int{0, len(p)}
	for range r.IntN(maxCut) {
		at = append(at, r.IntN(len(p)+1))
	}
	slices.Sort(at)
	p = bytes.Clone(p)
	bufs := make([][]byte, 0, len(at)-1)
	for i := range at[1:] {
		bufs = append(bufs, p[at[i]:at[i+1]:at[i+1]])
	}
	return bufs
}

// kept fails if write changes the segments, or the slice that holds them.
func kept(t *testing.T, bufs [][]byte, write func([][]byte) error) error {
	t.Helper()
	before, sum := slices.Clone(bufs), crc(slices.Concat(bufs...))
	err := write(bufs)
	for i, b := range bufs {
		if len(b) != len(before[i]) || cap(b) != cap(before[i]) || unsafe.SliceData(b) != unsafe.SliceData(before[i]) {
			t.Errorf("the slice of segments was changed at %d of %d", i, len(bufs))
			break
		}
	}
	if crc(slices.Concat(bufs...)) != sum {
		t.Error("the segments' bytes were changed")
	}
	return err
}

// testSegmentCounts writes every small number of segments, and such as are beyond what one call of a kernel takes.
// One buffer is its own neighbour many times: segments may be the same memory.
func testSegmentCounts(t *testing.T, from, to transport.Conn) {
	var counts []int
	for n := range maxCut + 1 {
		counts = append(counts, n)
	}
	counts = append(counts, 255, 256, 257, 1023, 1024, 1025, 3000)
	total, sum := 0, uint32(0)
	var writes [][][]byte
	src, size := random(11), rand.New(rand.NewPCG(11, 1))
	shared := make([]byte, 100)
	src.Read(shared)
	for _, n := range counts {
		bufs := make([][]byte, n)
		for i := range bufs {
			switch size.IntN(10) {
			case 0: // empty, or nil
				bufs[i] = shared[:0:size.IntN(2)]
			case 1:
				bufs[i] = shared
			case 2:
				bufs[i] = make([]byte, 1+size.IntN(20_000))
				src.Read(bufs[i])
			default:
				bufs[i] = make([]byte, 1+size.IntN(200))
				src.Read(bufs[i])
			}
			total, sum = total+len(bufs[i]), update(sum, bufs[i])
		}
		writes = append(writes, bufs)
	}
	writes = append(writes, nil, [][]byte{nil}, make([][]byte, 300))
	sent := start(func() result {
		for _, bufs := range writes {
			if err := kept(t, bufs, from.WriteBuffers); err != nil {
				return result{err: err}
			}
		}
		return result{n: total, sum: sum}
	})
	got := must(t, start(func() result { return drain(to, total) }), "reading")
	same(t, must(t, sent, "writing"), got)
}

func testSegmentsAfterClose(t *testing.T, from, to transport.Conn) {
	if err := from.CloseWrite(); err != nil {
		t.Fatalf("CloseWrite: %v", err)
	}
	for _, bufs := range [][][]byte{nil, {nil}, {[]byte("x")}, {[]byte("x"), []byte("y")}} {
		if err := from.WriteBuffers(bufs); err == nil || errors.Is(err, transport.ErrClosed) {
			t.Errorf("%d segments after CloseWrite: %v", len(bufs), err)
		}
	}
	from.Close()
	for _, bufs := range [][][]byte{nil, {nil}, {[]byte("x")}, {[]byte("x"), []byte("y")}} {
		if err := from.WriteBuffers(bufs); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("%d segments after Close: %v, want ErrClosed", len(bufs), err)
		}
		if w, ok := from.(transport.TryWriter); ok {
			if n, err := w.TryWriteBuffers(bufs); n != 0 || !errors.Is(err, transport.ErrClosed) {
				t.Errorf("trying %d segments after Close: %d, %v, want ErrClosed", len(bufs), n, err)
			}
		}
	}
}

// testTryWriteBuffers fills a lane that nobody reads, each time from where the write before has stopped, in
// mid-segment too.
func testTryWriteBuffers(t *testing.T, f Factory) {
	d, a := newRig(t, f, 1).lane(t, 0)
	w, ok := d.(transport.TryWriter)
	if !ok {
		t.Skipf("lanes of plane %s have no TryWriteBuffers", f.Plane)
	}
	src, where := random(4), rand.New(rand.NewPCG(4, 4))
	buf := make([]byte, 60_000)
	var sent result
	try := func(bufs [][]byte) (n int, err error) {
		t.Helper()
		err = kept(t, bufs, func(bufs [][]byte) error {
			var err error
			n, err = w.TryWriteBuffers(bufs)
			return err
		})
		return n, err
	}
	if n, err := try(nil); n != 0 || err != nil {
		t.Fatalf("no segments: %d, %v", n, err)
	}
	partial := 0
	for full := 0; full < 3; {
		if sent.n > 256<<20 {
			t.Fatalf("TryWriteBuffers took %d bytes that nobody reads", sent.n)
		}
		src.Read(buf)
		n, err := try(cut(where, buf))
		if err != nil || n > len(buf) {
			t.Fatalf("TryWriteBuffers: %d, %v", n, err)
		}
		sent.n, sent.sum = sent.n+n, update(sent.sum, buf[:n])
		if n < len(buf) {
			full++
		}
		if n > 0 && n < len(buf) {
			partial++
		}
	}
	if partial == 0 {
		t.Error("no write was taken in part")
	}
	// Writes that are taken in part, while somebody reads, and what remains by a write that waits.
	const further = 4 << 20
	total := sent.n + further
	got := start(func() result { return drain(a, total) })
	for left := further; left > 0; {
		p := buf[:min(len(buf), left)]
		src.Read(p)
		n, err := try(cut(where, p))
		if err != nil {
			t.Fatalf("TryWriteBuffers: %d, %v", n, err)
		}
		if n < len(p) {
			rest := start(func() result { return result{err: d.WriteBuffers(cut(where, p[n:]))} })
			if r := must(t, rest, "writing the rest"); r.err != nil {
				t.Fatalf("the rest of a write: %v", r.err)
			}
		}
		left, sent.n, sent.sum = left-len(p), sent.n+len(p), update(sent.sum, p)
	}
	same(t, sent, must(t, got, "reading"))
	a.Close()
	eventually(t, "TryWriteBuffers to a closed peer fails", func() bool {
		_, err := try(cut(where, buf))
		return err != nil
	})
}
