package mux

import (
	"sync"
	"testing"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// wireLog follows the records that a worker writes to its one lane.
type wireLog struct {
	mu    sync.Mutex
	buf   []byte
	total int // bytes of writes that have begun
	most  int // of one write
	opens map[wire.Slot]int
}

// wrote takes the next write. It runs before the write begins.
func (w *wireLog) wrote(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.total - len(w.buf)
	w.total += len(p)
	w.most = max(w.most, len(p))
	w.buf = append(w.buf, p...)
	for len(w.buf) >= wire.HeaderSize {
		h := wire.ParseHeader(w.buf)
		if len(w.buf) < wire.HeaderSize+h.Length {
			return
		}
		if h.Kind == wire.Open {
			w.opens[h.Slot] = at
		}
		at += wire.HeaderSize + h.Length
		w.buf = w.buf[wire.HeaderSize+h.Length:]
	}
}

func (w *wireLog) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

func (w *wireLog) openAt(s wire.Slot) (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.opens[s]
	return at, ok
}

// TestFirstRecordOvertakesTheBacklog: on a lane of 1 MB/s with 4,096 bulk records queued, at most one write of 64 KiB goes out
// between the first Send of a new stream and its record.
func TestFirstRecordOvertakesTheBacklog(t *testing.T) {
	const streams, each, size = 64, 64, 200
	for _, c := range []struct {
		name      string
		try, off  bool
		newcomers int
	}{{"writer", false, false, 8}, {"inline", true, false, 8}, {"off", true, true, 1}} {
		t.Run(c.name, func(t *testing.T) {
			p, _, work := newPlanePair(t, "memory", pairConfig{send: Config{NoUrgent: c.off}, mem: memory.Config{Rate: 1 << 20, Buffer: 64 << 10, TryWrite: c.try}})
			log := &wireLog{opens: make(map[wire.Slot]int)}
			see := log.wrote
			work.onWrite.Store(&see)
			var ins []*InStream
			var outs []*OutStream
			for range streams {
				in, out := p.open(t)
				ins, outs = append(ins, in), append(outs, out)
				if err := out.TrySend(makeRecord(nil, uint64(len(outs)), 0, size)); err != nil {
					t.Fatal(err)
				}
				if err := in.Wait(t.Context()); err != nil { // OPEN is out of the way
					t.Fatal(err)
				}
			}
			for i := 1; i <= each; i++ {
				for s, out := range outs {
					if err := out.TryPut(makeRecord(nil, uint64(s+1), i, size)); err != nil {
						t.Fatal(err)
					}
				}
			}
			p.send.Flush()
			for n := range c.newcomers {
				in, out := p.open(t)
				before := log.begun()
				if err := out.Send(t.Context(), makeRecord(nil, 1000, 0, size)); err != nil {
					t.Fatal(err)
				}
				if _, err := in.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				_ = out.Complete(nil)
				_ = in.Close()
				at, ok := log.openAt(in.slot)
				if !ok {
					t.Fatal("the record came, its OPEN was not seen on the wire")
				}
				queued := 0
				for _, l := range p.send.Stats().Lanes {
					queued += l.QueueBytes
				}
				t.Logf("newcomer %d: %d bytes went before its first record, %d wait behind it", n, at-before, queued)
				if c.off {
					if at-before <= bulkPerWrite {
						t.Errorf("%d bytes went before a first record: it has overtaken, with urgent off", at-before)
					}
					continue
				}
				if at-before > bulkPerWrite {
					t.Errorf("newcomer %d: %d bytes went before its first record, more than a write of %d", n, at-before, bulkPerWrite)
				}
				if n == 0 && queued < bulkPerWrite {
					t.Errorf("%d bytes were queued: there was nothing to overtake", queued)
				}
			}
			if log.most > bulkPerWrite+1<<10 { // a newcomer's first record and a PONG may stand before the bulk
				t.Errorf("a write had %d bytes, %d of bulk are allowed", log.most, bulkPerWrite)
			}
			for s, in := range ins {
				_ = outs[s].Complete(nil)
				for i := range each + 1 {
					rec, err := in.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if err := checkRecord(rec, uint64(s+1), i); err != nil {
						t.Fatal(err)
					}
				}
				_ = in.Close()
			}
			p.settled(t)
		})
	}
}
