package mux

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/laneway-ai/laneway/transport/memory"
)

// passes is an engine's pass over many streams and their consumers, in lock step.
type passes struct {
	p    *pair
	in   []*InStream
	out  []*OutStream
	recs [][]byte
}

func newPasses(t testing.TB, p *pair, streams, size int) *passes {
	b := &passes{p: p}
	for i := range streams {
		in, out := p.open(t)
		b.in, b.out = append(b.in, in), append(b.out, out)
		b.recs = append(b.recs, makeRecord(nil, uint64(i), 0, size-4))
	}
	return b
}

// put puts one record on each stream and flushes once.
func (b *passes) put(t testing.TB) {
	for i, out := range b.out {
		err := out.TryPut(b.recs[i])
		for errors.Is(err, ErrWindowFull) { // a loaded machine may be half a window behind with CONSUMED
			b.p.send.Flush()
			runtime.Gosched()
			err = out.TryPut(b.recs[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.p.send.Flush()
}

// pass is put, and takes every record at the other end.
func (b *passes) pass(t testing.TB) {
	b.put(t)
	for i, in := range b.in {
		batch, err := in.NextBatch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) != 1 || len(batch[0]) != len(b.recs[i]) {
			t.Fatalf("stream %d: %d records", i, len(batch))
		}
	}
}

func (b *passes) finish(t testing.TB) {
	for i, out := range b.out {
		_ = out.Complete(nil)
		_ = b.in[i].Close()
	}
}

// A record costs no allocation, on either side, once a stream runs. That includes its share of CONSUMED.
func TestNoAllocationPerRecord(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", try), func(t *testing.T) {
			p := newPair(t, pairConfig{recv: Config{GapMax: -1}, send: Config{GapMax: -1},
				mem: memory.Config{TryWrite: try}})
			b := newPasses(t, p, 64, 64)
			for range 1000 { // past the first half windows: chunks, buffers and timers are made
				b.pass(t)
			}
			if n := testing.AllocsPerRun(500, func() { b.pass(t) }); n > 0.5 {
				t.Errorf("a pass of 64 records allocates %.1f times", n)
			}
			b.finish(t)
		})
	}
}

func BenchmarkPass(b *testing.B) {
	for _, streams := range []int{1, 64, 1024, 8192} {
		for _, try := range []bool{false, true} {
			b.Run(fmt.Sprintf("plane=memory/streams=%d/record=64/inline=%t", streams, try), func(b *testing.B) {
				p := newPair(b, pairConfig{recv: Config{GapMax: -1, MaxBuffered: 64 << 30},
					send: Config{GapMax: -1, MaxReplay: 64 << 30}, mem: memory.Config{TryWrite: try}})
				s := newPasses(b, p, streams, 64)
				s.pass(b)
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					s.pass(b)
					n += streams
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
				s.finish(b)
			})
		}
	}
}
