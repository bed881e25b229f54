package mux

import (
	"sync"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// writeMost is how much bulk one write takes (docs/wire.md 4).
const writeMost = 64 << 10

// wireLog follows the records that a worker writes to its one lane. What it calls bulk are the records of the slots
// that stood in the backlog: first records, ENDs and what a lane says of its own are no backlog, however many there
// are.
type wireLog struct {
	mu    sync.Mutex
	buf   []byte
	slots map[wire.Slot]bool // of the backlog
	bulk  int                // bytes of its records so far
	most  int                // of bulk in one write
	opens map[wire.Slot]int  // how much bulk went before the OPEN
}

// wrote takes the next bytes. It runs before a Write and after a TryWrite, so it may be one write behind.
func (w *wireLog) wrote(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.bulk
	w.buf = append(w.buf, p...)
	for len(w.buf) >= wire.HeaderSize {
		h := wire.ParseHeader(w.buf)
		size := wire.HeaderSize + h.Length
		if len(w.buf) < size {
			break
		}
		switch {
		case h.Kind == wire.Open:
			w.opens[h.Slot] = w.bulk
		case w.slots[h.Slot] && h.Kind != wire.End: // one that answers a KILL is urgent
			w.bulk += size
		}
		w.buf = w.buf[size:]
	}
	w.most = max(w.most, w.bulk-before)
}

// queues says that the records of a slot are backlog from now on.
func (w *wireLog) queues(s wire.Slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots[s] = true
}

func (w *wireLog) widest() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

func (w *wireLog) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bulk
}

func (w *wireLog) openAt(s wire.Slot) (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.opens[s]
	return at, ok
}

// TestFirstRecordOvertakesTheBacklog: on a lane of 1 MB/s with 4,096 bulk records queued, at most one write of 64 KiB
// goes out between the first Send of a new stream and its record. The lane stands still until the first newcomer has
// sent, so that all of the backlog is there however late that is.
func TestFirstRecordOvertakesTheBacklog(t *testing.T) {
	const streams, each, size = 64, 64, 200
	for _, c := range []struct {
		name      string
		try, off  bool
		newcomers int
	}{{"writer", false, false, 8}, {"inline", true, false, 8}, {"off", true, true, 1}} {
		t.Run(c.name, func(t *testing.T) {
			p, _, work := newPlanePair(t, "memory", pairConfig{send: Config{NoUrgent: c.off},
				mem: memory.Config{Rate: 1 << 20, Buffer: 64 << 10, TryWrite: c.try}})
			log := &wireLog{opens: make(map[wire.Slot]int), slots: make(map[wire.Slot]bool)}
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
				log.queues(in.slot)
			}
			worker := p.net.Conns()[0].Peer()
			worker.Stall()
			for i := 1; i <= each; i++ {
				for s, out := range outs {
					if err := out.TryPut(makeRecord(nil, uint64(s+1), i, size)); err != nil {
						t.Fatal(err)
					}
				}
			}
			p.send.Flush()
			backlog := streams * each * (wire.HeaderSize + len(makeRecord(nil, 1, 1, size)))
			for n := range c.newcomers {
				in, out := p.open(t)
				if err := out.Send(t.Context(), makeRecord(nil, 1000, 0, size)); err != nil {
					t.Fatal(err)
				}
				// Read now: the record is handed in. If it has gone already, what went before it is less than nothing.
				before := log.sent()
				worker.Release()
				if _, err := in.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				_ = out.Complete(nil)
				_ = in.Close()
				at := 0
				waitFor(t, "OPEN in the log, which an inline write enters after it is made", func() (ok bool) {
					at, ok = log.openAt(in.slot)
					return ok
				})
				t.Logf("newcomer %d: %d bytes of backlog went before its first record", n, at-before)
				if n == 0 && backlog-before < 2*writeMost {
					t.Errorf("%d bytes of %d were queued: there was nothing to overtake", backlog-before, backlog)
				}
				switch {
				case c.off && at-before <= writeMost:
					t.Errorf("%d bytes went before a first record: it has overtaken, with urgent off", at-before)
				case !c.off && at-before > writeMost:
					t.Errorf("newcomer %d: %d bytes went before its first record, more than a write of %d", n,
						at-before, writeMost)
				}
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
			if n := log.widest(); n > writeMost {
				t.Errorf("a write had %d bytes of bulk, %d are allowed", n, writeMost)
			}
		})
	}
}
