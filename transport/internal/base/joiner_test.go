package base

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// pieces notes the writes that it gets.
type pieces struct {
	all   []byte
	sizes []int
	fail  int // at which write
}

func (w *pieces) Write(p []byte) (int, error) {
	if w.sizes = append(w.sizes, len(p)); len(w.sizes) == w.fail {
		w.all = append(w.all, p[:1]...)
		return 1, errors.New("broken")
	}
	w.all = append(w.all, p...)
	return len(p), nil
}

func TestJoinerWritesFullPieces(t *testing.T) {
	src := rand.New(rand.NewPCG(1, 1))
	var j Joiner
	for range 100 {
		var bufs [][]byte
		for range src.IntN(30) {
			b := make([]byte, src.IntN([]int{1, 100, 5000, joinMost + 2, 3 * joinMost}[src.IntN(5)]))
			for i := 0; i < len(b); i += 97 {
				b[i] = byte(src.Uint32())
			}
			bufs = append(bufs, b)
		}
		all := slices.Concat(bufs...)
		var w pieces
		if n, err := j.Write(&w, bufs); n != len(all) || err != nil {
			t.Fatalf("%d, %v; want %d", n, err, len(all))
		}
		if !bytes.Equal(w.all, all) {
			t.Fatal("other bytes were written")
		}
		for i, n := range w.sizes {
			if n != min(joinMost, len(all)-i*joinMost) {
				t.Fatalf("the pieces of %d bytes are %v", len(all), w.sizes)
			}
		}
		if len(j.buf) > joinMost {
			t.Fatalf("the buffer has %d bytes", len(j.buf))
		}
	}
	var w pieces
	if n, err := new(Joiner).Write(&w, [][]byte{{1, 2}, {3}, make([]byte, 100)}); n != 103 || err != nil ||
		len(w.sizes) != 1 {
		t.Errorf("%d, %v in %d writes", n, err, len(w.sizes))
	}
}

func TestJoinerSaysHowMuchWasWrittenAtAnError(t *testing.T) {
	w := pieces{fail: 2}
	n, err := new(Joiner).Write(&w, [][]byte{make([]byte, 10), make([]byte, 2*joinMost), make([]byte, 10)})
	if n != joinMost+1 || err == nil || len(w.sizes) != 2 {
		t.Errorf("%d, %v after %d writes", n, err, len(w.sizes))
	}
}

func TestJoinerAllocatesNothing(t *testing.T) {
	var j Joiner
	w := pieces{all: make([]byte, 0, 1<<20)}
	bufs := [][]byte{make([]byte, 10), make([]byte, 3*joinMost), make([]byte, 10)}
	if n := testing.AllocsPerRun(100, func() {
		w.all, w.sizes = w.all[:0], w.sizes[:0]
		if _, err := j.Write(&w, bufs); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	// A lane that says little keeps little.
	var little Joiner
	if _, err := little.Write(&w, [][]byte{make([]byte, 10), make([]byte, 10)}); err != nil ||
		len(little.buf) != joinLeast {
		t.Errorf("%v, the buffer has %d bytes", err, len(little.buf))
	}
}
