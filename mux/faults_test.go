package mux

import (
	"io"
	"math"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// faultWindow is the window of the streams whose worker or frontend breaks the protocol.
const faultWindow = 4 << 10

// fragments is n DATA_MORE of a thousand bytes.
func fragments(s wire.Slot, n int) (b []byte) {
	for range n {
		b = append(b, data(wire.DataMore, s, make([]byte, 1000))...)
	}
	return b
}

// What a worker does wrong on one stream ends that stream alone, as protocol, also where it is little; the worker gets
// KILL(protocol) for it unless it has sent END, and streams on the same lane go on. (TestHostileWorker has the whole
// table.)
func TestFaultOfAWorkersStream(t *testing.T) {
	open := func(m wire.Terms) []byte { return wire.AppendOpen(nil, m.Slot, m.Number, m.Key) }
	records := func(m wire.Terms, n, size int) []byte {
		var b []byte
		for range n {
			b = append(b, data(wire.Data, m.Slot, make([]byte, size))...)
		}
		return b
	}
	for _, c := range []struct {
		name  string
		bytes func(m wire.Terms) []byte // after OPEN
		ended bool                      // END is among them
		says  string
	}{
		{"a window that is overrun by an empty record", func(m wire.Terms) []byte {
			return append(records(m, 2, faultWindow/2-8), data(wire.Data, m.Slot, nil)...)
		}, false, "window"},
		{"DATA_MORE of more than half the window", func(m wire.Terms) []byte {
			return data(wire.DataMore, m.Slot, make([]byte, faultWindow/2-7))
		}, false, "at most"},
		{"OPEN twice", open, false, "OPEN"},
		{"a record that is too long, before its end", func(m wire.Terms) []byte {
			return fragments(m.Slot, 4)
		}, false, "record of more"},
		{"a count of records that is too low", func(m wire.Terms) []byte {
			return append(records(m, 2, 5), end(m.Slot, complete(m.Number, 1, 10))...)
		}, true, "counts"},
		{"a wrong count of bytes", func(m wire.Terms) []byte {
			return append(records(m, 2, 5), end(m.Slot, complete(m.Number, 2, 11))...)
		}, true, "counts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newRawWorker(t, Config{Window: faultWindow, MaxRecord: 3000}, memory.Config{}, nil)
			l := w.lane(t)
			in, m := w.mint(t, MintOptions{})
			near, o := w.mint(t, MintOptions{})
			defer in.Close()
			defer near.Close()
			l.send(t, open(m), open(o), c.bytes(m), data(wire.Data, o.Slot, []byte("still here")))
			if rec, err := near.Next(t.Context()); err != nil || string(rec) != "still here" {
				t.Fatalf("the neighbour: %q, %v", rec, err)
			}
			if e := in.End(); e == nil || e.Type != EndProtocol || !strings.Contains(e.Text, c.says) {
				t.Fatalf("the stream's end is %+v", e)
			}
			for { // what came before may be read, and is never taken for all
				if _, err := in.Next(t.Context()); err == io.EOF {
					t.Fatal("it looks complete")
				} else if err != nil {
					if got, _ := endType(err); got != EndProtocol {
						t.Error(err)
					}
					break
				}
			}
			if !c.ended {
				r, ok := l.await(t, "KILL", ofNumber(wire.Kill, m.Number))
				if _, why, err := wire.ParseKill(r.Slot, r.body); !ok || err != nil || why != EndProtocol {
					t.Errorf("KILL says %s, %v", why, err)
				}
				if n := w.recv.Stats().ClosingSlots; n != 1 {
					t.Errorf("%d slots wait for END", n)
				}
				l.send(t, data(wire.Data, m.Slot, []byte("was on its way")),
					end(m.Slot, wire.EndBody{Number: m.Number, Type: EndProtocol}))
			}
			if !l.alive(t) {
				t.Fatal("the lane has died")
			}
			l.send(t, end(o.Slot, complete(o.Number, 1, 10)))
			if _, err := near.Next(t.Context()); err != io.EOF {
				t.Errorf("the neighbour's end: %v", err)
			}
			st := w.recv.Stats()
			if l.count(wire.Kill) > 1 || c.ended && l.count(wire.Kill) > 0 {
				t.Errorf("%d KILLs", l.count(wire.Kill))
			}
			if st.OpenStreams+st.ClosingSlots != 0 || st.LaneDeaths[pipe.DownProtocol] != 0 || st.Links != 1 {
				t.Errorf("%d open, %d closing, %d links, deaths %v", st.OpenStreams, st.ClosingSlots, st.Links,
					st.LaneDeaths)
			}
		})
	}
}

// CONSUMED that cannot be ends its stream alone, as protocol: the writer is told, the frontend gets END, and streams
// on the same lane go on.
func TestConsumedOutOfRange(t *testing.T) {
	const size = 100
	sent := uint64(wire.HeaderSize + size)
	for _, c := range []struct {
		name  string
		first uint64 // 0: none
		then  uint64
	}{
		{"more than was sent", 0, sent + 1},
		{"far more than was sent", 0, math.MaxUint64},
		{"less than before", sent, sent - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newRawFront(t, Config{}, memory.Config{})
			l := f.lane(t)
			m, o := f.terms(l, 1), f.terms(l, 2)
			out, near := f.attach(t, m), f.attach(t, o)
			if err := out.TrySend(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if c.first != 0 {
				l.send(t, wire.AppendConsumed(nil, m.Slot, m.Number, c.first))
			}
			l.send(t, wire.AppendConsumed(nil, m.Slot, m.Number, c.then))
			<-out.Done()
			if got, _ := endType(out.Err()); got != EndProtocol {
				t.Errorf("the writer is told: %v", out.Err())
			}
			r, ok := l.await(t, "END", endOf(m.Number))
			e, err := wire.ParseEnd(r.Slot, r.body)
			if !ok || err != nil || e.Type != EndProtocol || !strings.Contains(e.Text, "CONSUMED") {
				t.Errorf("END is %+v, %v", e, err)
			}
			l.send(t, wire.AppendConsumed(nil, m.Slot, m.Number, c.then)) // was on its way
			if err := near.TrySend([]byte("still here")); err != nil {
				t.Error(err)
			}
			_ = near.Complete(nil)
			l.await(t, "the neighbour's END", endOf(o.Number))
			if !l.alive(t) {
				t.Fatal("the lane has died")
			}
			st := f.send.Stats()
			if st.RecordsDropped[dropStale] != 1 || st.OpenStreams != 0 || st.LaneDeaths[pipe.DownProtocol] != 0 {
				t.Errorf("dropped %v, %d open, deaths %v", st.RecordsDropped, st.OpenStreams, st.LaneDeaths)
			}
		})
	}
}
