package mux

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// passLog is a set of streams whose sinks write down in which pass they were called.
type passLog struct {
	in    []*InStream
	terms []wire.Terms
	calls []passCall // of the pass that is under way; only the goroutine that calls sinks uses it
	done  chan []passCall
}

type passCall struct {
	stream    int
	records   int
	end       bool
	goroutine string
}

// newPassLog mints streams and has every sink put off to the end of its pass what done then gets.
func newPassLog(t *testing.T, w *rawWorker, l *rawLane, streams int, o MintOptions) *passLog {
	p := &passLog{done: make(chan []passCall, 100)}
	for i := range streams {
		in, terms := w.mint(t, o)
		p.in, p.terms = append(p.in, in), append(p.terms, terms)
		in.onPass(func(pass *Pass, records [][]byte, end *End) bool {
			if pass.Value() == nil {
				if len(p.calls) > 0 {
					t.Errorf("stream %d: a new pass has begun, and the end of the last one was not told", i)
				}
				pass.Defer(p, func() { p.end(t, w) })
			} else if pass.Value() != p {
				t.Errorf("stream %d: the pass has the value %v", i, pass.Value())
			}
			p.calls = append(p.calls, passCall{i, len(records), end != nil, goroutineID()})
			return true
		})
		t.Cleanup(func() { _ = in.Close() })
		l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key))
	}
	if !l.alive(t) {
		t.Fatal("the lane has ended")
	}
	return p
}

// end is what is put off: it runs after the last sink call, on the same goroutine, with no lock held.
func (p *passLog) end(t *testing.T, w *rawWorker) {
	for _, c := range p.calls {
		if id := goroutineID(); c.goroutine != id {
			t.Errorf("the sink of stream %d was called on %s, the end of the pass on %s", c.stream, c.goroutine, id)
		}
	}
	for i, in := range p.in {
		_ = in.End() // takes the stream's lock
		if in.inSink {
			t.Errorf("a sink call of stream %d is under way", i)
		}
	}
	_ = w.recv.Stats() // takes those of the links and lanes
	p.done <- slices.Clone(p.calls)
	p.calls = p.calls[:0]
}

// next is the next pass that has ended.
func (p *passLog) next(t *testing.T) []passCall {
	t.Helper()
	select {
	case calls := <-p.done:
		return calls
	case <-time.After(guard):
		t.Fatal("no pass has ended")
	}
	return nil
}

func goroutineID() string {
	var b [64]byte
	line := b[:runtime.Stack(b[:], false)]
	return string(line[:bytes.IndexByte(line, '[')])
}

// The sinks of one read are called in one pass, and what they put off is done once, after the last of them.
func TestPassIsARead(t *testing.T) {
	w := newRawWorker(t, Config{}, memory.Config{}, nil)
	l := w.lane(t)
	p := newPassLog(t, w, l, 16, MintOptions{})
	for round := range 3 {
		var read []byte
		for i := range p.in {
			read = append(read, data(wire.Data, p.terms[i].Slot, []byte("record"))...)
			if i%2 == 0 {
				read = append(read, data(wire.Data, p.terms[i].Slot, []byte("another"))...)
			}
		}
		l.send(t, read)
		calls := p.next(t)
		if len(calls) != len(p.in) {
			t.Fatalf("round %d: a pass of %d calls, expected one for each of %d streams", round, len(calls), len(p.in))
		}
		for i, c := range calls {
			if c.stream != i || c.records != 1+(i+1)%2 || c.end {
				t.Errorf("round %d, call %d: %+v", round, i, c)
			}
		}
	}
	first := l.alive(t)
	if !first || !l.alive(t) || len(p.done) != 0 { // when the second has its answer, the read of the first is over
		t.Errorf("a read without records has ended %d passes", len(p.done))
	}
}

// A sink that is called outside a read of its lane is in a pass too: all streams that are told at that moment are in
// it.
func TestPassOutsideARead(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		o    MintOptions
		end  func(w *rawWorker, l *rawLane)
	}{
		{"deadline", Config{}, MintOptions{TimeLeft: 50 * time.Millisecond}, func(*rawWorker, *rawLane) {}},
		{"link lost", Config{}, MintOptions{}, func(w *rawWorker, _ *rawLane) { w.recv.RemovePeer(workerID) }},
		{"lane dead, no failover", Config{ResumeTimeout: -1}, MintOptions{},
			func(_ *rawWorker, l *rawLane) { _ = l.conn.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newRawWorker(t, c.cfg, memory.Config{}, nil)
			l := w.lane(t)
			p := newPassLog(t, w, l, 8, c.o)
			c.end(w, l)
			seen := map[int]bool{}
			for passes := 0; len(seen) < len(p.in); passes++ {
				// deadlines of streams that were minted one after the other may lie on both sides of a tick
				if passes > 2 {
					t.Fatalf("%d passes for one moment", passes)
				}
				for _, call := range p.next(t) {
					if !call.end || seen[call.stream] {
						t.Errorf("%+v", call)
					}
					seen[call.stream] = true
				}
			}
		})
	}
}

// What several sinks put off is done in their order, and the pass is new afterwards.
func TestPassOfSeveral(t *testing.T) {
	n := new(node)
	n.init(Config{}, 0)
	var p Pass
	var did []int
	for round := range 2 {
		if p.Value() != nil {
			t.Fatalf("round %d: the value is %v", round, p.Value())
		}
		for i := range 3 {
			p.Defer(i, func() {
				if did = append(did, i); i == 2 && round == 0 {
					p.Defer(3, func() { did = append(did, 3) })
				}
			})
			if p.Value() != i {
				t.Errorf("the value is %v, expected %d", p.Value(), i)
			}
		}
		p.end(n)
	}
	if want := []int{0, 1, 2, 3, 0, 1, 2}; !slices.Equal(did, want) {
		t.Errorf("done: %v, expected %v", did, want)
	}
}

// What is put off counts as time in the sink.
func TestSlowEndOfAPassIsCounted(t *testing.T) {
	inFakeTime(t, "slow", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, nil)
		l := w.lane(t)
		in, terms := w.mint(t, MintOptions{})
		defer in.Close()
		pause := slowSink / 2
		in.onPass(func(pass *Pass, _ [][]byte, _ *End) bool {
			pass.Defer(nil, func() { time.Sleep(pause) })
			return true
		})
		l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key))
		for want, d := range []time.Duration{slowSink / 2, 2 * slowSink} {
			pause = d
			l.send(t, data(wire.Data, terms.Slot, []byte("x")))
			time.Sleep(time.Second)
			synctest.Wait()
			if st := w.recv.Stats(); st.SinkSlow != uint64(want) {
				t.Errorf("%d slow sink calls after a pass that ended in %v, expected %d", st.SinkSlow, d, want)
			}
		}
	})
}

// A pass costs no allocation, nor does what a sink puts off.
func TestNoAllocationPerPass(t *testing.T) {
	p := newPair(t, pairConfig{recv: Config{GapMax: -1}, send: Config{GapMax: -1}, mem: memory.Config{TryWrite: true}})
	b := &passes{p: p}
	got := make(chan int, 100)
	calls := 0
	batch, after := new(int), func() { got <- calls; calls = 0 }
	for i := range 64 {
		in, out := p.open(t)
		in.onPass(func(pass *Pass, records [][]byte, _ *End) bool {
			if pass.Value() == nil {
				pass.Defer(batch, after)
			}
			calls += len(records)
			return true
		})
		b.in, b.out = append(b.in, in), append(b.out, out)
		b.recs = append(b.recs, makeRecord(nil, uint64(i), 0, 60))
	}
	pass := func() {
		b.put(t)
		for n := 0; n < len(b.out); {
			n += <-got
		}
	}
	for range 1000 {
		pass()
	}
	if n := testing.AllocsPerRun(500, pass); n > 0.5 {
		t.Errorf("a pass of 64 sink calls allocates %.1f times", n)
	}
	b.finish(t)
}
