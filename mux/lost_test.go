package mux

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// cutLane ends the connection of one lane, and nobody can be dialled until allow.
func (p *pair) cutLane(lane int) {
	for _, e := range p.endpoints {
		p.net.Silence(e)
	}
	for _, c := range p.net.Conns() {
		if c.Info().Lane == lane {
			c.Cut(errors.New("cut by the test"))
		}
	}
}

func (p *pair) allow() {
	for _, e := range p.endpoints {
		p.net.Allow(e)
	}
}

// A lane that has no connection for too long is lost, and the link is not: its streams end at both sides, nothing is
// minted there, the other lane goes on, and the lane serves again when it comes back, before its worker's hold is over
// or after.
func TestLaneIsLostAndComesBack(t *testing.T) {
	const hold = DefaultResume + DefaultIdle + 5*time.Second
	const streams = 20 // on the lane
	for _, back := range []time.Duration{DefaultResume / 2, 2 * DefaultResume, hold + 10*time.Second} {
		inFakeTime(t, fmt.Sprintf("back after %v", back), func(t *testing.T) {
			p := newPair(t, pairConfig{recv: Config{Lanes: 2}})
			lost, kept := back > DefaultResume, back <= hold
			near, nearOut := p.openOn(t, 1)
			carry(t, near, nearOut, 0)
			var ins []*InStream
			var outs []*OutStream
			for len(ins) < streams {
				in, out := p.open(t)
				if _, lane := in.Lane(); lane != 0 {
					_ = in.Close()
					<-out.Done()
					continue
				}
				carry(t, in, out, 0)
				ins, outs = append(ins, in), append(outs, out)
			}
			p.cutLane(0)
			begun := time.Now()
			for _, out := range outs { // they know nothing of it
				if err := out.TrySend(makeRecord(nil, 1, 1, 64)); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
			for range 5 {
				in, out := p.open(t)
				if _, lane := in.Lane(); lane != 1 {
					t.Error("a stream was minted on a lane that has no connection")
				}
				carry(t, in, out, 0)
				finish(t, in, out)
			}
			if lost {
				for _, in := range ins {
					waitFor(t, "the end", func() bool { return in.End() != nil })
					took(t, "lost", begun, DefaultResume, DefaultResume+2*tickEvery)
					if end := in.End(); end.Type != EndLost {
						t.Errorf("ended as %s", end.Type)
					}
				}
				if n := p.recv.Stats().ClosingSlots; n != streams {
					t.Errorf("%d slots wait for END", n)
				}
			}
			if !kept {
				for _, out := range outs {
					<-out.Done()
					took(t, "lost at the worker", begun, hold, hold+time.Second+2*tickEvery)
					if end, _ := endType(out.Err()); end != EndLost {
						t.Error(out.Err())
					}
				}
				st := p.send.Stats()
				if windows := st.CommittedBytes - st.LogBytes; windows != DefaultWindow {
					t.Errorf("windows of %d bytes are committed, only the neighbour's should be", windows)
				}
			}
			time.Sleep(back - time.Since(begun))
			carry(t, near, nearOut, 1)
			p.allow()
			waitFor(t, "the lane is back", func() bool { return p.state().Lanes == 2 })
			for i, in := range ins {
				if lost {
					<-outs[i].Done() // by KILL, if not before
					if end, _ := endType(outs[i].Err()); end != EndLost {
						t.Errorf("the worker's end is %v", outs[i].Err())
					}
					_ = in.Close()
					continue
				}
				rec, err := in.Next(t.Context())
				if err == nil {
					err = checkRecord(rec, 1, 1)
				}
				if err != nil {
					t.Error(err)
				}
				carry(t, in, outs[i], 2)
				finish(t, in, outs[i])
			}
			in, out := p.openOn(t, 0)
			carry(t, in, out, 0)
			finish(t, in, out)
			carry(t, near, nearOut, 2)
			finish(t, near, nearOut)
			p.settled(t)
			front, work := p.recv.Stats(), p.send.Stats()
			want := map[bool]uint64{true: streams}[lost]
			if front.StreamsEnded["lost"] != want || work.StreamsEnded["lost"] != want {
				t.Errorf("%d and %d streams are lost, expected %d", front.StreamsEnded["lost"],
					work.StreamsEnded["lost"], want)
			}
			if front.Links != 1 || front.StreamsEnded["protocol"]+work.StreamsEnded["protocol"] != 0 {
				t.Errorf("%d links, ends %v and %v", front.Links, front.StreamsEnded, work.StreamsEnded)
			}
		})
	}
}

// A request that comes to a lane without a connection runs and waits, and holds the lane.
func TestRequestOnALaneWithoutAConnection(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, pairConfig{recv: Config{ResumeTimeout: time.Minute}, send: Config{ResumeTimeout: time.Minute}})
		in, err := p.recv.Mint(t.Context(), p.id, MintOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.cutLane(0)
		time.Sleep(5 * time.Second)
		out, err := p.send.Attach(in.Terms())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := out.TrySend(makeRecord(nil, 1, i, 64)); err != nil {
				t.Fatal(err)
			}
		}
		_ = out.Complete(nil)
		time.Sleep(5 * time.Second)
		if in.Opened() {
			t.Error("it is open without a connection")
		}
		p.allow()
		for i := range 100 {
			rec, err := in.Next(t.Context())
			if err == nil {
				err = checkRecord(rec, 1, i)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		_ = in.Close()
		p.settled(t)
	})
}

// KILLs that were owed while the lane had no connection, and KILLs and ENDs whose connection died at any byte, arrive
// once: each slot comes free, and no index ever breaks the rule of the worker's table, which would end the link.
func TestKillsAndEndsOverDeaths(t *testing.T) {
	for _, rate := range []int{0, 8 << 10} { // slow: connections die within records
		inFakeTime(t, fmt.Sprintf("rate %d", rate), func(t *testing.T) {
			p := newPair(t, pairConfig{recv: Config{Lanes: 2, GapMax: -1}, send: Config{MaxStreams: 40},
				mem: memory.Config{Rate: rate, Latency: time.Millisecond, TryWrite: true}})
			for round := range 30 {
				var ins []*InStream
				for i := range 40 { // each index again and again
					in, err := p.recv.Mint(t.Context(), p.id, MintOptions{})
					if errors.Is(err, ErrBusy) || errors.Is(err, ErrNoLink) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if i%3 != 0 { // the request of the others never comes, or too late
						out, err := p.send.Attach(in.Terms())
						if err != nil {
							t.Fatal(err)
						}
						if i%3 == 1 {
							_ = out.TrySend(makeRecord(nil, 1, 0, 64))
						}
						if i%6 == 1 {
							_ = out.Complete(nil) // crosses the KILL
						}
					}
					ins = append(ins, in)
				}
				if round%2 == 0 {
					p.net.Cut(nil)
				}
				for i, in := range ins {
					if i%2 == 0 {
						in.Stop()
					}
					in.Kill(End{Type: EndKilled})
				}
				time.Sleep(time.Duration(round) * time.Millisecond) // of fake time: the death comes at another place
				p.net.Cut(nil)
				for _, in := range ins {
					_ = in.Close()
				}
				waitFor(t, "all slots are free", func() bool { return p.isSettled() })
				for _, in := range ins {
					if _, err := p.send.Attach(in.Terms()); !errors.Is(err, ErrStaleTerms) {
						t.Fatalf("a late request: %v", err)
					}
				}
				waitFor(t, "a lane", func() bool { return p.recv.Up(p.id) })
			}
			front, work := p.recv.Stats(), p.send.Stats()
			if front.Links != 1 || front.LaneDeaths[pipe.DownProtocol]+work.LaneDeaths[pipe.DownProtocol] != 0 {
				t.Errorf("%d links, deaths %v and %v", front.Links, front.LaneDeaths, work.LaneDeaths)
			}
			if n := takeovers(p.recv); n < 30 {
				t.Errorf("only %d takeovers", n)
			}
		})
	}
}

// ENDs that answer KILLs of requests that never came are in the string once each, whatever a death leaves unread.
func TestOwedEndsOverDeaths(t *testing.T) {
	const kills = 2000 // several turns of Emit
	inFakeTime(t, "", func(t *testing.T) {
		f := newRawFront(t, Config{GapMax: -1}, memory.Config{Buffer: 4 << 10, Latency: time.Millisecond,
			Rate: 100 << 10})
		l := f.lane(t)
		var b []byte
		for i := range uint32(kills) {
			b = wire.AppendKill(b, wire.MakeSlot(i+1, 1), uint64(i+1), EndKilled)
		}
		l.send(t, b)
		ends := make(map[uint64]int)
		received, sent := uint64(0), uint64(len(b))
		waitFor(t, "all KILLs", func() bool { return f.send.Stats().BytesIn >= sent })
		death := 0
		for ; len(ends) < kills; death++ {
			if death > 100 {
				t.Fatalf("%d of %d ENDs after %d deaths", len(ends), kills, death)
			}
			time.Sleep(time.Duration(50+13*death) * time.Millisecond) // of fake time: it dies somewhere else each time
			_ = l.conn.Close()
			<-l.done
			for _, r := range l.of(0) {
				e, err := wire.ParseEnd(r.Slot, r.body)
				if err != nil || e.Type != EndKilled || wire.MakeSlot(uint32(e.Number), 1) != r.Slot {
					t.Fatalf("%s of slot %v: %+v, %v", r.Kind, r.Slot, e, err)
				}
				ends[e.Number]++
			}
			received += l.received()
			l = f.laneOf(t, 0, received)
			if l.peer.Received != sent {
				t.Fatalf("the worker says %d of %d bytes received", l.peer.Received, sent)
			}
		}
		if death < 5 {
			t.Errorf("only %d deaths", death)
		}
		for n, times := range ends {
			if times != 1 {
				t.Errorf("END of number %d came %d times", n, times)
			}
		}
		if !l.alive(t) {
			t.Error("the lane has died")
		}
	})
}

// While the END that answers a KILL is owed, its index takes nothing: a request is refused, STOP is ignored, and KILL
// of the next number breaks the rule, for an honest frontend waits for END.
func TestIndexThatOwesItsEnd(t *testing.T) {
	f, l, release := stuckFront(t, Config{})
	m := f.terms(l, 7)
	in := f.send.Stats().BytesIn
	kill := wire.AppendKill(nil, m.Slot, m.Number, EndKilled)
	l.send(t, kill)
	waitFor(t, "KILL", func() bool { return f.send.Stats().BytesIn == in+uint64(len(kill)) })
	if _, err := f.send.Attach(f.mint(&m)); !errors.Is(err, ErrStaleTerms) {
		t.Errorf("the request that was killed: %v", err)
	}
	next := f.terms(l, 7)
	l.send(t, wire.AppendStop(nil, next.Slot, next.Number))
	waitFor(t, "STOP", func() bool { return f.send.Stats().RecordsDropped[dropStale] == 1 })
	if _, err := f.send.Attach(f.mint(&next)); !errors.Is(err, ErrStaleTerms) {
		t.Errorf("the next request: %v", err)
	}
	release()
	if _, ok := l.await(t, "END", endOf(m.Number)); !ok {
		t.Fatal("the lane has died")
	}
	out := f.attach(t, next)
	if out.Stopping() {
		t.Error("a STOP that came too early is remembered")
	}
	_ = out.Complete(nil)
	if _, ok := l.await(t, "END", endOf(next.Number)); !ok {
		t.Fatal("the lane has died")
	}

	f, l, _ = stuckFront(t, Config{})
	m = f.terms(l, 7)
	l.send(t, wire.AppendKill(nil, m.Slot, m.Number, EndKilled), wire.AppendKill(nil, m.Slot, m.Number+1, EndKilled))
	l.dead(t)
	if n := f.send.Stats().LaneDeaths[pipe.DownProtocol]; n != 1 {
		t.Errorf("%d deaths are counted as protocol", n)
	}
}

// What streams have not sent goes with them when their lane is lost: nothing bounds it any more.
func TestLostLaneKeepsNoRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		f.lanes = 2
		f.lane(t).talk(wire.Ping)
		l := f.laneOf(t, 1, 0)
		_ = l.conn.Close()
		synctest.Wait() // until the worker knows: what was sealed before stays in the log
		const n = 100
		for i := range n {
			s := f.attach(t, f.terms(l, uint32(i+1)))
			for range 60 {
				if err := s.Send(t.Context(), make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(DefaultResume + DefaultIdle + 10*time.Second)
		for _, st := range f.send.Stats().Lanes {
			if st.Lane == 1 && st.QueueBytes > n*200 {
				t.Errorf("a lane that is lost keeps %d bytes of %d streams that were given up", st.QueueBytes, n)
			}
		}
		again := f.laneOf(t, 1, 0)
		waitFor(t, "all ENDs", func() bool { return again.count(wire.End) == n })
		if again.alive(t); again.count(wire.End) != n || again.count(wire.Data) != 0 {
			t.Errorf("%d ENDs came of %d streams, and %d records", again.count(wire.End), n, again.count(wire.Data))
		}
	})
}
