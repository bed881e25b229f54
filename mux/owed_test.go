package mux

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// The END of a stream whose CONSUMED(end), or whose KILL, may have died with the lane is acknowledged by KILL on another lane: at once when
// one is up, else on the next.
func TestEndIsAcknowledgedOverADeath(t *testing.T) {
	for name, kill := range map[string]bool{"complete": false, "killed, and the END crossed": true} {
		for _, lanes := range []int{1, 2} {
			inFakeTime(t, name, func(t *testing.T) {
				w := newRawWorker(t, Config{Lanes: lanes, Window: 4 << 10}, memory.Config{}, nil)
				first := w.lane(t)
				other := first
				if lanes == 2 {
					other = w.lane(t)
				}
				synctest.Wait()
				in, terms := w.mint(t, MintOptions{})
				on := map[uint64]*rawLane{first.peer.Serial: first, other.peer.Serial: other}[terms.Serial]
				if on == other {
					other = first
				}
				on.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key))
				if kill {
					on.alive(t)
					in.Kill(End{Type: EndKilled})
				}
				on.send(t, end(terms.Slot, wire.EndBody{Number: terms.Number, Type: EndComplete}))
				synctest.Wait()
				st := w.recv.Stats()
				if st.OpenStreams != 0 || st.ClosingSlots != 0 {
					t.Fatalf("%d slots are taken after END", st.OpenStreams)
				}
				if kill {
					on.await(t, "KILL", ofNumber(wire.Kill, terms.Number))
				}
				_ = on.conn.Close()
				if lanes == 1 {
					other = w.lane(t)
				}
				if _, ok := other.await(t, "KILL on the other lane", ofNumber(wire.Kill, terms.Number)); !ok {
					t.Fatal("the other lane has died")
				}
				other.send(t, end(terms.Slot, wire.EndBody{Number: terms.Number, Type: EndKilled})) // as a worker does
				if !other.alive(t) {
					t.Error("the END that answers ended the lane")
				}
				if n := w.recv.Stats().RecordsDropped[dropFree]; n != 1 {
					t.Errorf("%d records of a free slot dropped, expected the END", n)
				}
				_ = in.Close()
				other.pong(t, func() bool {
					owed := 0
					for _, st := range w.recv.Stats().Lanes {
						owed += st.OwedEnds
					}
					return owed == 0
				})
			})
		}
	}
}

// pong answers PINGs, as a worker does, until it is enough.
func (l *rawLane) pong(t *testing.T, enough func() bool) {
	for seen, pongs := 0, 0; !enough(); {
		time.Sleep(time.Second)
		synctest.Wait()
		l.mu.Lock()
		recs := l.recs
		l.mu.Unlock()
		for ; seen < len(recs); seen++ {
			if recs[seen].Kind == wire.Ping {
				v, _ := wire.ParseUint64(recs[seen].Header, recs[seen].body)
				l.send(t, wire.AppendPing(nil, wire.Pong, v))
				if pongs++; pongs > 5 {
					t.Fatal("five PONGs are not enough")
				}
			}
		}
		synctest.Wait()
	}
}

// What a PONG has settled is not said again.
func TestSettledEndIsNotSaidAgain(t *testing.T) {
	inFakeTime(t, "settled", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, nil)
		l := w.lane(t)
		owed := func() int { return w.recv.Stats().Lanes[0].OwedEnds }
		var last wire.Terms
		for range 10 {
			in, terms := w.mint(t, MintOptions{})
			l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key), end(terms.Slot, wire.EndBody{Number: terms.Number, Type: EndComplete}))
			l.alive(t)
			_ = in.Close()
			last = terms
		}
		synctest.Wait()
		if n := owed(); n != 10 {
			t.Fatalf("%d ends are owed, expected 10", n)
		}
		l.pong(t, func() bool { return owed() == 0 })
		_ = l.conn.Close()
		next := w.lane(t)
		in, terms := w.mint(t, MintOptions{})
		in.Kill(End{Type: EndKilled})
		next.await(t, "KILL", ofNumber(wire.Kill, terms.Number))
		if n := next.count(wire.Kill); n != 1 || terms.Number == last.Number {
			t.Errorf("%d KILLs on the next lane, expected the one of the stream that was killed", n)
		}
		next.send(t, end(terms.Slot, wire.EndBody{Number: terms.Number, Type: EndKilled}))
		next.alive(t)
	})
}

// A worker keeps nothing of streams that have ended once their frontend has another lane: not for the hold time.
func TestNothingIsHeldOfEndedStreams(t *testing.T) {
	inFakeTime(t, "held", func(t *testing.T) {
		p := newPair(t, pairConfig{recv: Config{GapMax: -1}, send: Config{GapMax: -1, Hold: time.Hour}})
		for range 100 {
			in, out := p.open(t)
			if err := out.TrySend([]byte("record")); err != nil {
				t.Fatal(err)
			}
			_ = out.Complete(nil)
			synctest.Wait()
			if in.End() == nil {
				t.Fatal("no END")
			}
			_ = in.Close()
		}
		if st := p.send.Stats(); st.ReplayBytes == 0 {
			t.Fatal("all is acknowledged before the lane dies: this test tests nothing")
		}
		p.net.Cut(nil)
		for begun := time.Now(); !p.isSettled(); time.Sleep(10 * time.Millisecond) {
			if time.Since(begun) > 5*time.Second {
				t.Fatalf("the worker still holds %d bytes", p.send.Stats().ReplayBytes)
			}
		}
	})
}

// What is owed is bounded, and the newest stays.
func TestOwedIsBounded(t *testing.T) {
	var o owed
	for i := range uint64(3 * maxOwed) {
		o.note(owedEnd{number: i})
		if n := len(o.ends); n > maxOwed || o.ends[n-1].number != i {
			t.Fatalf("%d ends, the last is %d after %d", n, o.ends[n-1].number, i)
		}
	}
	if n := len(o.ends); n < maxOwed/2 {
		t.Errorf("%d ends are left", n)
	}
	k := &inLink{}
	for range 3 {
		k.owe(nil, o.ends)
	}
	if n := len(k.owed); n > maxOwed || k.owed[n-1] != o.ends[len(o.ends)-1] {
		t.Errorf("a link without a lane owes %d ends", n)
	}
}
