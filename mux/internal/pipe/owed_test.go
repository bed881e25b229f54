package pipe

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// source emits records of 1 KiB, at most eight at a time.
type source struct {
	owed   Owed
	n      *node
	at     Place
	left   int
	called int
	during func()
}

func (s *source) Emit(p *Pipe) bool {
	s.called++
	for range min(8, s.left) {
		s.n.say(s.at, wire.Data, 1<<10-wire.HeaderSize)
		s.left--
	}
	if s.during != nil {
		s.during()
	}
	return s.left > 0
}

func newSource(n *node, at Place, left int) *source {
	s := &source{n: n, at: at, left: left}
	s.owed.Owner = s
	return s
}

// TestOwed lets owners emit in turn, a write's worth at a time, and urgent news although bulk waits.
func TestOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{Config: Config{LogLimit: 4 << 20}})
		n := g.worker()
		for range 1000 {
			n.say(Bulk, wire.Data, 1000)
		}
		bulk, urgent, lifted := newSource(n, Bulk, 100), newSource(n, Urgent, 100), newSource(n, Urgent, 10)
		n.pipe.Owe(&bulk.owed, Bulk)
		n.pipe.Owe(&urgent.owed, Urgent)
		n.pipe.Owe(&lifted.owed, Bulk)
		n.pipe.Owe(&lifted.owed, Urgent)
		n.pipe.Owe(&lifted.owed, Bulk) // keeps its turn
		l := newLink(1, 1, [2]int{-1, -1})
		_, b := l.ends(false)
		if err := n.pipe.Start(g.session(worker, b, 0)); err != nil { // its first write does not end
			t.Fatal(err)
		}
		synctest.Wait()
		if urgent.called == 0 || lifted.left != 0 || bulk.called != 0 {
			t.Errorf("with 1 MB of bulk in front: urgent was called %d times and lifted has %d left, bulk was called "+
				"%d times",
				urgent.called, lifted.left, bulk.called)
		}
		if n.pipe.batch.size > urgentPerWrite+bulkPerWrite {
			t.Errorf("one write has %d bytes", n.pipe.batch.size)
		}
		g.finish(1, false)
		if bulk.left+urgent.left != 0 {
			t.Errorf("%d and %d were not emitted", bulk.left, urgent.left)
		}
	})
}

// first is a frontend's handler that looks for bulk that came before urgent.
type first struct {
	node
	urgent, bulk, early int
}

func (f *first) Record(h wire.Header, _ []byte) error {
	if Place(h.Slot.Generation()) == Urgent {
		f.urgent++
		f.early = f.bulk
	} else {
		f.bulk++
	}
	return nil
}

// TestUrgentFirst has more urgent than a write takes, and than the log: no bulk goes before the rest of it, for a
// stream's first records may be there.
func TestUrgentFirst(t *testing.T) {
	for _, log := range []int{256 << 10, 4 << 20} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, rigConfig{Config: Config{LogLimit: log}})
			h := &first{node: node{t: t}}
			g.front().pipe.handler = h
			for range 200 {
				g.worker().say(Bulk, wire.Data, 10)
				g.worker().say(Urgent, wire.Data, 4000)
			}
			g.connect(newLink(1, 10_000, [2]int{-1, -1}).ends(true))
			time.Sleep(time.Second)
			g.stop()
			if h.urgent != 200 || h.bulk != 200 || h.early != 0 {
				t.Errorf("%d urgent records and %d of bulk came, of which %d before the last urgent one", h.urgent,
					h.bulk, h.early)
			}
			g.worker().checkEmpty()
		})
	}
}

// TestOwedInTurn has three owners with much to say take turns.
func TestOwedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{})
		n := g.worker()
		var order []int
		for i := range 3 {
			s := newSource(n, Bulk, 24)
			s.during = func() { order = append(order, i) }
			n.pipe.Owe(&s.owed, Bulk)
		}
		g.finish(1, true)
		if want := []int{0, 1, 2, 0, 1, 2, 0, 1, 2}; !slices.Equal(order, want) {
			t.Errorf("they emitted in the order %v", order)
		}
	})
}

// TestDisown takes an owner out for good, also while it emits, and lets it come back when it says so itself.
func TestDisown(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, rigConfig{})
			n := g.worker()
			waits, emits := newSource(n, Bulk, 8), newSource(n, Bulk, 100)
			n.pipe.Owe(&waits.owed, Bulk)
			n.pipe.Owe(&emits.owed, Bulk)
			n.pipe.Disown(&waits.owed)
			emits.during = func() {
				n.pipe.Disown(&emits.owed)
				if again && emits.called == 1 {
					n.pipe.Owe(&emits.owed, Bulk)
				}
			}
			g.connect(newLink(1, 1<<20, [2]int{-1, -1}).ends(true))
			time.Sleep(time.Second)
			synctest.Wait()
			if want := map[bool]int{false: 1, true: 2}[again]; waits.called != 0 || emits.called != want {
				t.Errorf("disowned ones emitted %d and %d times, expected 0 and %d", waits.called, emits.called, want)
			}
			g.finish(1, true)
		})
	}
}

// TestSettledWhileAnOwnerEmits: what it has to say is not said yet.
func TestSettledWhileAnOwnerEmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{})
		s := newSource(g.worker(), Bulk, 0)
		settled := false
		s.during = func() { settled = g.worker().pipe.Settled() }
		g.worker().pipe.Owe(&s.owed, Bulk)
		g.finish(1, true)
		if s.called != 1 || settled || !g.worker().pipe.Settled() {
			t.Errorf("it emitted %d times; settled: %t meanwhile, %t then", s.called, settled,
				g.worker().pipe.Settled())
		}
	})
}

// TestChunks: an idle lane keeps one small chunk a place, and a fuller one gets larger ones.
func TestChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{Config: Config{LogLimit: 4 << 20}})
		n := g.worker()
		g.connect(newLink(1, 1<<20, [2]int{-1, -1}).ends(true))
		for i := range 1000 {
			n.say(Place(i%2), wire.Data, 100)
			n.pipe.Flush(ByFlush)
			synctest.Wait()
			g.front().pipe.Ping()
			synctest.Wait()
			if n.budget.out > 2 {
				t.Fatalf("after %d records that were acknowledged one by one, %d chunks are out", i, n.budget.out)
			}
		}
		for _, free := range n.budget.free[1:] {
			if len(free) > 0 {
				t.Errorf("an idle lane had a chunk of %d bytes", cap(free[0].b))
			}
		}
		g.front().pipe.Stop()
		for range 10_000 {
			n.say(Bulk, wire.Data, 92)
		}
		if most := 1_000_000/maxChunk + 20; n.budget.out > most {
			t.Errorf("1 MB in %d chunks", n.budget.out)
		}
		g.finish(1, true)
	})
}

func TestClasses(t *testing.T) {
	b := NewBudget(1 << 20)
	for _, c := range []struct{ n, want int }{{8, 4 << 10}, {4 << 10, 4 << 10}, {4<<10 + 1, 8 << 10},
		{32<<10 + 1, 64 << 10}, {64 << 10, 64 << 10}} {
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			for range 2 { // made, and from the pool
				k := b.get(c.n)
				if cap(k.b) != c.want || len(k.b) != 0 {
					t.Errorf("a chunk for %d bytes has %d of %d", c.n, len(k.b), cap(k.b))
				}
				k.b = k.b[:1]
				b.put(k)
			}
		})
	}
}
