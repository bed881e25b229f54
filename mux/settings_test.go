package mux

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// Settings that both ends must share travel in HELLO. A flag that was changed at one end only cuts no healthy lane,
// with open streams and without, whichever end it is and however far apart the two are.
func TestPingSettingsThatDiffer(t *testing.T) {
	settings := map[string]Config{
		"default": {},
		"hasty": {KeepAlive: 100 * time.Millisecond, Idle: 300 * time.Millisecond,
			ActivePing: 100 * time.Millisecond},
		"odd": {KeepAlive: 150 * time.Millisecond, Idle: 151 * time.Millisecond,
			ActivePing: 150 * time.Millisecond},
		"slow":     {KeepAlive: time.Hour, Idle: 3 * time.Hour, ActivePing: time.Minute},
		"as idle":  {ActivePing: -1},
		"reversed": {KeepAlive: 200 * time.Millisecond, Idle: time.Second, ActivePing: time.Minute},
	}
	for front, recv := range settings {
		for work, send := range settings {
			inFakeTime(t, front+" and "+work, func(t *testing.T) {
				p := newPair(t, pairConfig{recv: recv, send: send,
					mem: memory.Config{Latency: 20 * time.Millisecond, TryWrite: true}})
				for round := range 3 { // idle, busy, idle
					if round != 1 {
						time.Sleep(3 * time.Minute)
						continue
					}
					in, out := p.open(t)
					carry(t, in, out, 0)
					time.Sleep(4 * time.Minute)
					carry(t, in, out, 1)
					finish(t, in, out)
				}
				for who, st := range map[string]Stats{"frontend": p.recv.Stats(), "worker": p.send.Stats()} {
					for why, n := range st.LaneDeaths {
						if n != 0 {
							t.Errorf("%s: %d connections of a healthy lane ended: %s", who, n, why)
						}
					}
				}
			})
		}
	}
}

// Of two resume timeouts the shorter one holds, at both ends: the worker gives a lane up after it, the idle silence
// and 5 s.
func TestShorterResumeTimeoutHolds(t *testing.T) {
	for _, c := range []struct{ front, work, want time.Duration }{
		{2 * time.Second, 20 * time.Second, 2 * time.Second},
		{20 * time.Second, 2 * time.Second, 2 * time.Second},
		{-1, 20 * time.Second, 0},
		{20 * time.Second, -1, 0},
	} {
		inFakeTime(t, fmt.Sprintf("%v and %v", c.front, c.work), func(t *testing.T) {
			p := newPair(t, pairConfig{recv: Config{ResumeTimeout: c.front, Lanes: 2},
				send: Config{ResumeTimeout: c.work}})
			in, out := p.openOn(t, 1)
			carry(t, in, out, 0)
			begun := time.Now()
			p.deafen()
			waitFor(t, "the frontend's end", func() bool { return in.End() != nil })
			if end := in.End(); end.Type != EndLost {
				t.Errorf("ended as %s: %s", end.Type, end.Text)
			}
			took(t, "lost at the frontend", begun, c.want, c.want+2*tickEvery)
			<-out.Done()
			hold := c.want + DefaultIdle + 5*time.Second
			took(t, "lost at the worker", begun, hold, hold+time.Second+2*tickEvery)
			if end, _ := endType(out.Err()); end != EndLost {
				t.Errorf("the writer is told: %v", out.Err())
			}
			_ = in.Close()
		})
	}
}

// deafen cuts all connections and lets nobody be reached.
func (p *pair) deafen() {
	for _, e := range p.endpoints {
		p.net.Silence(e)
	}
	p.net.Cut(nil)
}

// openOn opens a stream on a lane.
func (p *pair) openOn(t testing.TB, lane int) (*InStream, *OutStream) {
	t.Helper()
	for range 100 {
		in, out := p.open(t)
		if _, on := in.Lane(); on == lane {
			return in, out
		}
		_ = in.Close()
		<-out.Done()
	}
	t.Fatalf("no stream came on lane %d", lane)
	return nil, nil
}

// With the resume timeout off, the death of a connection ends its streams at once, at both ends, and the lane serves
// again: hundreds of deaths leave nothing behind and nobody waits for a hold.
func TestNoResumeOverManyDeaths(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, pairConfig{recv: Config{ResumeTimeout: -1, Lanes: 2}})
		r := rand.New(rand.NewPCG(3, 4))
		var lost, done int
		for range 300 {
			in, out := p.open(t)
			carry(t, in, out, 0)
			if r.IntN(2) == 0 {
				finish(t, in, out)
				done++
				continue
			}
			_, lane := in.Lane()
			begun := time.Now()
			for _, c := range p.net.Conns() {
				if c.Info().Lane == lane {
					c.Cut(errors.New("cut by the test"))
				}
			}
			if _, err := in.Next(t.Context()); err == nil {
				t.Fatal("a record came")
			}
			took(t, "lost", begun, 0, 2*tickEvery)
			<-out.Done()
			took(t, "lost at the worker", begun, 0, time.Second) // by KILL, over the next connection
			_ = in.Close()
			lost++
		}
		p.settled(t)
		if st := p.recv.Stats(); st.StreamsEnded["lost"] != uint64(lost) ||
			st.StreamsEnded["complete"] != uint64(done) {
			t.Errorf("ends %v, expected %d lost and %d complete", st.StreamsEnded, lost, done)
		}
		if st := p.send.Stats(); st.StreamsEnded["lost"] != uint64(lost) ||
			st.StreamsEnded["complete"] != uint64(done) {
			t.Errorf("the worker's ends are %v, expected %d lost and %d complete", st.StreamsEnded, lost, done)
		}
	})
}

// The peer's limit of silence holds where it is the shorter one, at both sides.
func TestShorterSilenceHolds(t *testing.T) {
	hasty := wire.Pings{Idle: 100 * time.Millisecond, IdleSilence: 500 * time.Millisecond,
		Active:        200 * time.Millisecond,
		ActiveSilence: 700 * time.Millisecond}
	for want, open := range map[time.Duration]bool{hasty.IdleSilence: false, hasty.ActiveSilence: true} {
		inFakeTime(t, fmt.Sprintf("worker, open=%t", open), func(t *testing.T) {
			f := newRawFront(t, Config{}, memory.Config{})
			l := f.dial(t)
			h := f.hello()
			h.Pings = hasty
			begun := time.Now()
			if err := f.greet(t, l, h); err != nil {
				t.Fatal(err)
			}
			f.worker = l.peer.OwnSecret
			l.pump()
			if open {
				f.attach(t, f.terms(l, 1))
			}
			<-l.done
			took(t, "dead", begun, want, want+2*tickEvery)
		})
		inFakeTime(t, fmt.Sprintf("frontend, open=%t", open), func(t *testing.T) {
			w := newRawWorker(t, Config{}, memory.Config{}, func(h *wire.HelloBody) []byte {
				h.Pings = hasty
				return wire.AppendHello(nil, h)
			})
			begun := time.Now()
			l := w.lane(t)
			if open {
				in, _ := w.mint(t, MintOptions{})
				defer in.Close()
			}
			<-l.done
			took(t, "dead", begun, want, want+2*tickEvery)
		})
	}
}
