package mux

import (
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/transport/memory"
)

// TestFullWindowDoesNotWaitForTheGap: a producer that has filled its window adds nothing to what waits, so neither
// its records nor the credit for them wait for company. With urgent off they do, which costs a gap for each half of
// the window.
func TestFullWindowDoesNotWaitForTheGap(t *testing.T) {
	const window, size, records, gap = 8 << 10, 1000, 1000, 5 * time.Millisecond
	for _, c := range []struct {
		name     string
		off, try bool
	}{{"writer", false, false}, {"inline", false, true}, {"off", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Window: window, GapMax: gap, NoUrgent: c.off}
				p := newPair(t, pairConfig{recv: cfg, send: cfg, mem: memory.Config{TryWrite: c.try}})
				in, out := p.open(t)
				begun := time.Now()
				var producer sync.WaitGroup
				producer.Go(func() {
					var rec []byte
					for i := range records {
						rec = makeRecord(rec, 1, i, size)
						if err := out.Put(t.Context(), rec); err != nil {
							t.Error(err)
							return
						}
					}
					_ = out.Complete(nil)
				})
				for i := range records {
					rec, err := in.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if err := checkRecord(rec, 1, i); err != nil {
						t.Fatal(err)
					}
				}
				took := time.Since(begun)
				if _, err := in.Next(t.Context()); err != io.EOF {
					t.Error(err)
				}
				producer.Wait()
				_ = in.Close()
				p.settled(t)
				t.Logf("%d windows took %v", records*size/window, took)
				if halves := records * size / (window / 2); c.off {
					if took < time.Duration(halves/4)*gap {
						t.Errorf("it took %v with urgent off: the gap did not hold it", took)
					}
				} else if took > 10*gap {
					t.Errorf("it took %v, and nobody but the gap of %v holds it", took, gap)
				}
			})
		})
	}
}

// TestStoppedConsumerLeavesTheGapAlone: a stream whose window is full because nobody reads it has nothing to send,
// and the writes of its lane are as few as without it.
func TestStoppedConsumerLeavesTheGapAlone(t *testing.T) {
	const records, pace, gap = 1000, 100 * time.Microsecond, 5 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Window: 256 << 10, GapMax: gap}
		p := newPair(t, pairConfig{recv: cfg, send: cfg, mem: memory.Config{TryWrite: true}})
		stopped, full := p.open(t)
		in, out := p.open(t)
		for i := 0; ; i++ {
			if err := full.TryPut(makeRecord(nil, 1, i, 1000)); errors.Is(err, ErrWindowFull) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		p.send.Flush()
		// of fake time: all of it is over there, and the burst that the gap allows is whole again
		time.Sleep(time.Second)
		before := writesOf(p.send)
		for i := range records {
			if err := out.TryPut(makeRecord(nil, 2, i, 64)); err != nil {
				t.Fatal(err)
			}
			if err := full.TryPut(makeRecord(nil, 1, 0, 1000)); !errors.Is(err, ErrWindowFull) {
				t.Fatal(err)
			}
			p.send.Flush()
			time.Sleep(pace) // of fake time: the engine's pace is what is tested
		}
		most := uint64(records*pace/gap) + 10 // the burst, the first record, a PING or two
		if n := writesOf(p.send) - before; n > most {
			t.Errorf("%d writes for %d records at a gap of %v, at most %d are expected", n, records, gap, most)
		}
		_ = out.Complete(nil)
		for i := range records {
			rec, err := in.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := checkRecord(rec, 2, i); err != nil {
				t.Fatal(err)
			}
		}
		_ = in.Close()
		_ = stopped.Close()
		p.settled(t)
	})
}

// writesOf is how many writes a worker has made.
func writesOf(s *WorkerNode) (n uint64) {
	for _, k := range s.Stats().Writes {
		n += k
	}
	return n
}
