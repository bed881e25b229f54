package mux

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// The ring against a plain slice: sizes and offsets around the edges of chunks, reads that go back as a RESUME does.
func TestRing(t *testing.T) {
	seeds := uint64(300)
	if underRace {
		seeds = 50
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		pool := &chunkPool{}
		ring := ring{pool: pool}
		var all []byte // the whole string
		size := func() int {
			switch r.IntN(4) {
			case 0:
				return r.IntN(20)
			case 1:
				return chunkPayload - 3 + r.IntN(7)
			case 2:
				return chunkPayload*(1+r.IntN(3)) - int(ring.tail-ring.start)%chunkPayload // to the edge
			}
			return r.IntN(3 * chunkPayload)
		}
		for step := range 200 {
			switch r.IntN(5) {
			case 0, 1:
				b := make([]byte, size())
				for i := range b {
					b[i] = byte(r.Uint32())
				}
				ring.append(b)
				all = append(all, b...)
			case 2:
				if ring.tail > ring.base {
					from := ring.base + r.Uint64N(ring.tail-ring.base)
					n := 1 + r.IntN(int(ring.tail-from))
					if got := ring.read([]byte("x"), from, n); !bytes.Equal(got[1:], all[from:from+uint64(n)]) {
						t.Fatalf("seed %d step %d: read %d bytes from %d is wrong", seed, step, n, from)
					}
				}
			case 3:
				if n := min(ring.tail-ring.base, wire.HeaderSize); n > 0 {
					from := ring.base + r.Uint64N(ring.tail-ring.base-n+1)
					b := make([]byte, n)
					if ring.peek(b, from); !bytes.Equal(b, all[from:from+n]) {
						t.Fatalf("seed %d step %d: peek at %d is wrong", seed, step, from)
					}
				}
			case 4:
				to := ring.base + r.Uint64N(ring.tail-ring.base+1)
				switch r.IntN(4) {
				case 0:
					to = ring.tail
				case 1:
					to = max(ring.base, ring.tail-ring.tail%chunkPayload)
				}
				ring.release(to)
			}
			held := 0
			for c := ring.first; c != nil; c = c.next {
				held++
			}
			most := int(ring.tail-ring.base)/chunkPayload + 2
			if ring.tail == ring.base {
				most = 1
			}
			if held > most || ring.tail != uint64(len(all)) {
				t.Fatalf("seed %d step %d: %d chunks hold [%d, %d), %d bytes were appended", seed, step, held, ring.base, ring.tail, len(all))
			}
		}
		ring.release(ring.tail)
		if ring.first != nil || ring.last != nil || ring.at != nil {
			t.Fatalf("seed %d: an empty ring holds chunks", seed)
		}
		seen := map[*chunk]bool{}
		n := 0
		for c := pool.free; c != nil; c = c.next {
			if n++; seen[c] {
				t.Fatalf("seed %d: a chunk is twice in the free list", seed)
			}
			seen[c] = true
		}
		if n != pool.n {
			t.Fatalf("seed %d: %d chunks are free, %d are counted", seed, n, pool.n)
		}
	}
}

func TestChunkPoolIsBounded(t *testing.T) {
	pool := &chunkPool{}
	for range maxFreeChunks + 100 {
		pool.put(&chunk{})
	}
	if pool.n != maxFreeChunks {
		t.Errorf("%d chunks are kept, the bound is %d", pool.n, maxFreeChunks)
	}
}

// The list against a slice.
func TestList(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	var q list
	var want []*element
	for range 20_000 {
		switch {
		case len(want) == 0 || r.IntN(2) == 0 && len(want) < 20:
			e := &element{}
			q.push(e)
			want = append(want, e)
		default:
			i := r.IntN(len(want))
			q.remove(want[i])
			want = append(want[:i:i], want[i+1:]...)
		}
		i := 0
		var before *element
		for e := q.first; e != nil; e = e.next {
			if i >= len(want) || e != want[i] || e.prev != before {
				t.Fatalf("element %d is wrong", i)
			}
			before, i = e, i+1
		}
		if i != len(want) || q.n != i || q.last != before {
			t.Fatalf("%d elements, n is %d, expected %d", i, q.n, len(want))
		}
	}
}

// fakeStream is something that a lane visits.
type fakeStream struct {
	element
	left int // visits that it still has bytes for
	on   func()
}

func (s *fakeStream) emit(l *lane, b []byte, _ int) ([]byte, int, int, bool) {
	if s.on != nil {
		s.on()
	}
	if s.left == 0 {
		return b, 0, 0, false
	}
	s.left--
	b = wire.AppendPing(b, wire.Pong, 0)
	more := s.left > 0
	if more {
		l.mu.Lock()
		l.place(&s.element, false)
		l.mu.Unlock()
	}
	return b, 0, 1, more
}

// A stream that has more when another has joined meanwhile is written in the end without another Flush.
func TestRestOfAStreamNeedsNoFlush(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		n := memory.NewNetwork(memory.Config{})
		front, work := n.Transport(frontID), n.Transport(workerID)
		defer front.Close()
		defer work.Close()
		f := connectRawFront(t, Config{GapMax: -1}, n, front, work, "worker:0")
		raw := f.lane(t)
		l := (*f.send.flushable.Load())[0]
		long, joins := &fakeStream{left: 5}, &fakeStream{left: 1}
		long.owner, joins.owner = long, joins
		joined := false
		long.on = func() {
			if !joined {
				joined = true
				l.enqueue(&joins.element, 1, false) // Put, not flushed
			}
		}
		l.enqueue(&long.element, 5, false)
		begun := time.Now()
		l.flush(writeFlush)
		waitFor(t, "six records", func() bool { return raw.count(wire.Pong) == 6 })
		took(t, "written", begun, 0, 10*time.Millisecond)
		l.mu.Lock()
		if l.queued != 0 || !l.empty() {
			t.Errorf("%d bytes are queued", l.queued)
		}
		l.mu.Unlock()
	})
}

// What a lane counts as queued is what its streams have to send, whatever moved meanwhile.
func TestQueuedBytesComeBackToZero(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", try), func(t *testing.T) {
			p := newPair(t, pairConfig{recv: Config{Lanes: 3}, mem: memory.Config{TryWrite: try}})
			exchange(t, p, 50, 64, 2000)
			p.settled(t)
			for name, st := range map[string]Stats{"frontend": p.recv.Stats(), "worker": p.send.Stats()} {
				for _, l := range st.Lanes {
					if l.QueueBytes != 0 || l.Streams != 0 {
						t.Errorf("%s lane %d: %d bytes queued, %d streams", name, l.Lane, l.QueueBytes, l.Streams)
					}
				}
			}
		})
	}
}
