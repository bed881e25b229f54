package mux

import (
	"io"
	"runtime"
	"sync"
	"testing"
)

// TestBurstOfEnds: 10,000 live streams on one link end in one burst. None is refused, every slot comes free, and no
// memory stays behind but tables and the bounded pools of chunks. It runs twice, so that what stays would be seen to
// grow.
func TestBurstOfEnds(t *testing.T) {
	const firstStays = 32 << 20 // pools, and tables of slots
	streams := 10_000
	if underRace {
		streams = 2000
	}
	for _, plane := range allPlanes {
		t.Run("plane="+plane, func(t *testing.T) {
			p, _, _ := newPlanePair(t, plane, pairConfig{})
			before := heap()
			for round := range 2 {
				burst(t, p, streams)
				p.settled(t)
				front, work := p.recv.Stats(), p.send.Stats()
				want := uint64(streams * (round + 1))
				if work.Refused != 0 || front.StreamsEnded["complete"] != want ||
					work.StreamsEnded["complete"] != want {
					t.Fatalf("%d refused, ends %v and %v", work.Refused, front.StreamsEnded, work.StreamsEnded)
				}
				waitFor(t, "all windows to be given back", func() bool { // the last sink call may not be over
					front, work = p.recv.Stats(), p.send.Stats()
					return front.CommittedBytes == front.LogBytes && work.CommittedBytes == work.LogBytes
				})
				if front.BufferedBytes != 0 {
					t.Errorf("%d bytes are buffered", front.BufferedBytes)
				}
				k := p.recv.all()[0]
				k.mu.Lock()
				free, top := len(k.free)-k.freeHead, int(k.top)
				k.mu.Unlock()
				if free != top || top != streams {
					t.Errorf("%d of %d slots are free after %d streams at a time", free, top, streams)
				}
				after := heap()
				t.Logf("round %d: heap %d KiB before, %d after", round, before>>10, after>>10)
				if grown := after - before; grown > [2]int64{firstStays, 4 << 20}[round] {
					t.Errorf("%d bytes of heap stay", grown)
				}
				before = after
			}
		})
	}
}

func burst(t *testing.T, p *pair, streams int) {
	t.Helper()
	ins, outs := make([]*InStream, streams), make([]*OutStream, streams)
	var ended sync.WaitGroup
	ended.Add(streams)
	for i := range ins {
		ins[i], outs[i] = p.open(t)
		if i%2 == 0 { // the other half is pulled below, after all have ended
			ins[i].onRecords(func(recs [][]byte, end *End) bool {
				if end != nil {
					if end.Type != EndComplete || end.Records != 1 {
						t.Errorf("stream %d: %+v", i, *end)
					}
					ended.Done()
				}
				return true
			})
		}
		if err := outs[i].TryPut(makeRecord(nil, uint64(i), 0, 64)); err != nil {
			t.Fatal(err)
		}
	}
	p.send.Flush()
	if n := p.recv.Stats().OpenStreams; n != int64(streams) {
		t.Fatalf("%d of %d streams are open", n, streams)
	}
	for i, out := range outs {
		if err := out.Complete(nil); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	for i, in := range ins {
		if i%2 == 0 {
			continue
		}
		rec, err := in.Next(t.Context())
		if err == nil {
			err = checkRecord(rec, uint64(i), 0)
		}
		if err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
		if _, err := in.Next(t.Context()); err != io.EOF {
			t.Errorf("stream %d: %v", i, err)
		}
		_ = in.Close()
		ended.Done()
	}
	ended.Wait()
}

// heap is the size of what is reachable.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
