package mux

import (
	"fmt"
	"slices"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// stuckFront is a frontend whose lane takes nothing more, with one stream that has filled the write that is under way.
func stuckFront(t *testing.T, cfg Config) (f *rawFront, l *rawLane, release func()) {
	t.Helper()
	cfg.GapMax = -1
	f = newRawFront(t, cfg, memory.Config{Buffer: 1 << 10})
	l = f.lane(t)
	worker := f.net.Conns()[0].Peer()
	if f.net.Conns()[0].Info().Remote.String() != f.addr { // the dialler's end, or the other one
		worker = worker.Peer()
	}
	worker.Stall()
	terms := f.terms(l, 100)
	out := f.attach(t, terms)
	if err := out.TrySend(make([]byte, 4000)); err != nil {
		t.Fatal(err)
	}
	_ = out.Complete(nil)
	waitFor(t, "a write that waits", func() bool { return worker.Queued() > 0 })
	return f, l, worker.Release
}

// A stream has 16 KiB unsent in its lane while others wait; what follows, END too, waits for its turn, and the turns
// go round.
func TestStreamsShareALane(t *testing.T) {
	const size, records, streams = 1000, 150, 4
	const first = 2*wire.HeaderSize + wire.OpenSize + size // OPEN and its DATA, which are urgent
	const share = 16<<10 + wire.HeaderSize + size          // or one longer record
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("no urgent=%t", off), func(t *testing.T) {
			f, l, release := stuckFront(t, Config{NoUrgent: off})
			terms := make([]wire.Terms, streams)
			for i := range terms {
				terms[i] = f.terms(l, uint32(i+1))
				terms[i].Window = 1 << 20
				out := f.attach(t, terms[i])
				for n := range records { // all of one stream before any of the next
					if err := out.TrySend(makeRecord(nil, terms[i].Number, n, size-4)); err != nil {
						t.Fatal(err)
					}
				}
				if err := out.Complete([]byte("trailer")); err != nil {
					t.Fatal(err)
				}
			}
			late := f.terms(l, 50) // it comes last, with little: its one turn is the next
			out := f.attach(t, late)
			for n := range 2 {
				if err := out.TrySend(makeRecord(nil, late.Number, n, 100)); err != nil {
					t.Fatal(err)
				}
			}
			_ = out.Complete(nil)
			release()
			for _, m := range append(slices.Clone(terms), late) {
				if _, ok := l.await(t, "END", endOf(m.Number)); !ok {
					t.Fatal("the lane has died")
				}
			}
			next := make(map[wire.Slot]int)
			bytes := 0 // of all streams so far
			lateAt := -1
			var run int
			var of wire.Slot
			for _, r := range l.of(0) {
				i := slices.IndexFunc(terms, func(m wire.Terms) bool { return m.Slot == r.Slot })
				if i < 0 {
					if r.Slot == late.Slot && r.Kind == wire.End {
						lateAt = bytes
					}
					continue
				}
				m := terms[i]
				switch r.Kind {
				case wire.Data:
					if err := checkRecord(r.body, m.Number, next[r.Slot]); err != nil {
						t.Fatal(err)
					}
					next[r.Slot]++
				case wire.End:
					e, err := wire.ParseEnd(r.Slot, r.body)
					if err != nil || next[r.Slot] != records || e.Records != records || string(e.Trailer) != "trailer" {
						t.Errorf("END of slot %v after %d records: %+v, %v", r.Slot, next[r.Slot], e, err)
					}
				}
				if r.Slot != of {
					of, run = r.Slot, 0
				}
				run += wire.HeaderSize + r.Length
				bytes += wire.HeaderSize + r.Length
				others := 0
				for _, o := range terms {
					if o.Slot != r.Slot && next[o.Slot] < records {
						others++
					}
				}
				if others > 0 && run > share+first {
					t.Fatalf("%d bytes of slot %v in a row while %d others wait", run, r.Slot, others)
				}
			}
			if most := streams*(share+first) + 2*writeMost; lateAt < 0 || lateAt > most {
				t.Errorf("%d bytes went before what is due in the next turn, expected at most %d", lateAt, most)
			}
		})
	}
}

// What is unsent of a stream that was killed is skipped: in bulk, what the stream keeps, and an OPEN that nobody
// needs. What was sealed goes out. Its END comes at once, and its neighbours lose nothing.
func TestUnsentRecordsOfKilledStreams(t *testing.T) {
	const size, records = 1000, 200
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("no urgent=%t", off), func(t *testing.T) {
			f, l, release := stuckFront(t, Config{NoUrgent: off})
			open := func(index uint32) (wire.Terms, *OutStream) {
				m := f.terms(l, index)
				m.Window = 1 << 20
				return m, f.attach(t, m)
			}
			fill := func(m wire.Terms, out *OutStream, n int) {
				for i := range n {
					if err := out.TrySend(makeRecord(nil, m.Number, i, size-4)); err != nil {
						t.Fatal(err)
					}
				}
			}
			long, longOut := open(1)   // has more than its share
			done, doneOut := open(2)   // the same, and has ended: END is kept too
			short, shortOut := open(3) // has OPEN and one record, urgent
			near, nearOut := open(4)
			fill(long, longOut, records)
			fill(done, doneOut, records)
			_ = doneOut.Complete(nil)
			fill(near, nearOut, records)
			fill(short, shortOut, 1)
			_ = nearOut.Complete(nil)
			for _, m := range []wire.Terms{long, done, short} {
				l.send(t, wire.AppendKill(nil, m.Slot, m.Number, EndKilled))
			}
			<-longOut.Done()
			<-shortOut.Done()
			if err := doneOut.Err(); err != nil {
				t.Errorf("a stream that has ended has another end: %v", err)
			}
			if !off { // the lane's reader has handled all three by now
				waitFor(t, "KILLs", func() bool { return f.send.Stats().StreamsEnded["killed"] == 2 })
			}
			release()
			for _, m := range []wire.Terms{long, done, short, near} {
				if _, ok := l.await(t, "END", endOf(m.Number)); !ok {
					t.Fatal("the lane has died")
				}
			}
			if !l.alive(t) {
				t.Fatal("the lane has died")
			}
			for name, m := range map[string]wire.Terms{"long": long, "done": done, "short": short} {
				recs := l.of(m.Slot)
				last := recs[len(recs)-1]
				if e, err := wire.ParseEnd(last.Slot, last.body); err != nil || e.Type != EndKilled {
					t.Errorf("%s: the last of %d records is %s, %+v, %v", name, len(recs), last.Kind, e, err)
				}
				if len(recs) != 1 {
					t.Errorf("%s: %d records went out that nobody wants", name, len(recs)-1)
				}
			}
			recs := l.of(near.Slot)
			if len(recs) != records+2 {
				t.Fatalf("%d records of the neighbour", len(recs))
			}
			for i, r := range recs[1 : records+1] {
				if err := checkRecord(r.body, near.Number, i); err != nil {
					t.Fatal(err)
				}
			}
			st := f.send.Stats()
			if st.RecordsSkipped == 0 || st.OpenStreams != 0 {
				t.Errorf("%d records are counted as skipped, %d streams are open", st.RecordsSkipped, st.OpenStreams)
			}
			if st.CommittedBytes != st.LogBytes {
				t.Errorf("windows of %d bytes are committed", st.CommittedBytes-st.LogBytes)
			}
			for _, k := range f.send.all() {
				for _, n := range k.lanes {
					if len(n.unwanted) != 0 {
						t.Errorf("%d slots are still skipped", len(n.unwanted))
					}
				}
			}
			again := f.terms(l, 1) // the index serves again, and nothing of it is skipped
			again.Slot = wire.MakeSlot(1, long.Slot.Generation())
			next := f.attach(t, again)
			if err := next.TrySend([]byte("again")); err != nil {
				t.Fatal(err)
			}
			_ = next.Complete(nil)
			l.await(t, "END", endOf(again.Number))
			if recs := l.of(again.Slot); len(recs) != 4 || string(recs[2].body) != "again" {
				t.Errorf("%d records of the index", len(recs))
			}
		})
	}
}
