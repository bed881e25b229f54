package accept

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// second is by how much later than due what is looked at once a second may happen.
const second = time.Second + 100*time.Millisecond

// A lane is held for the agreed resume timeout, the idle limit and 5 s from when its connection went or the last
// Touch; the layer above is told once for each loss. The link is forgotten when that has come for all lanes.
func TestHolds(t *testing.T) {
	inFakeTime(t, "one lane of two", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{})
		p := r.dial(t).up(t, hello(1))
		other := r.dial(t).up(t, next(p, 1, 1))
		other.talk(t)
		s := r.link(t)
		lane := s.link.Lanes()[0]
		lost := func(what string, n int, since time.Time) {
			t.Helper()
			for time.Since(since) < 100*time.Second && len(s.all()) < n {
				time.Sleep(50 * time.Millisecond)
			}
			if all := s.all(); len(all) != n || all[n-1].lane != 0 {
				t.Fatalf("%s: %+v", what, all)
			}
			took(t, what, s.all()[n-1].at.Sub(since), 30*time.Second, 30*time.Second+second)
		}
		begun := time.Now()
		_ = p.Close()
		lost("lost", 1, begun)
		time.Sleep(100 * time.Second) // not told twice
		begun = time.Now()
		lane.Touch()
		lost("lost after a Touch", 2, begun)
		q := r.dial(t).up(t, next(p, 0, 2))
		time.Sleep(5 * time.Second)
		begun = time.Now()
		_ = q.Close()
		time.Sleep(20 * time.Second)
		begun = begun.Add(20 * time.Second)
		lane.Touch()
		lost("lost again, and touched meanwhile", 3, begun)
		_ = r.dial(t).up(t, next(p, 0, 3)).Close() // it was held all the time
		begun = time.Now()
		_ = other.Close()
		e := s.ended(t)
		took(t, "forgotten", e.at.Sub(begun), 30*time.Second, 30*time.Second+second)
		if e.protocol || r.Link(frontID, 1) != nil {
			t.Errorf("%+v", e)
		}
		r.dial(t).refusedAs(t, next(p, 0, 4), wire.AwayUnknownLink)
	})
	for _, c := range []struct {
		own, theirs time.Duration
		idle        time.Duration // of the frontend
		hold        time.Duration
	}{
		{10 * time.Second, 2 * time.Second, 15 * time.Second, 22 * time.Second},
		{time.Second, 10 * time.Second, 15 * time.Second, 21 * time.Second},
		{0, 10 * time.Second, 15 * time.Second, 20 * time.Second},
		{time.Hour, time.Hour, 15 * time.Second, wire.MaxResume + 20*time.Second},
		{10 * time.Second, 10 * time.Second, 0, 30 * time.Second}, // silence is three PINGs at least
	} {
		inFakeTime(t, fmt.Sprint("agreed, ", c.own, " and ", c.theirs, ", ", c.idle), func(t *testing.T) {
			cfg := config()
			cfg.Resume = c.own
			r := newRig(t, cfg, memory.Config{})
			h := hello(1)
			h.Resume, h.Pings.IdleSilence = c.theirs, c.idle
			p := r.dial(t).up(t, h)
			s := r.link(t)
			_ = p.Close()
			begun := time.Now()
			time.Sleep(c.hold - time.Second)
			if len(s.all()) > 0 {
				t.Fatalf("%+v", s.all())
			}
			took(t, "forgotten", s.ended(t).at.Sub(begun), c.hold, c.hold+second)
		})
	}
	inFakeTime(t, "a process that was stopped", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{})
		p := r.dial(t).up(t, hello(1))
		other := r.dial(t).up(t, next(p, 1, 1))
		other.talk(t)
		s := r.link(t)
		_ = p.Close()
		begun := time.Now()
		time.Sleep(20 * time.Second)
		r.late.Store(int64(time.Minute))
		took(t, "lost", func() time.Duration {
			for len(s.all()) == 0 {
				time.Sleep(50 * time.Millisecond)
			}
			return s.all()[0].at.Sub(begun)
		}(), 90*time.Second, 90*time.Second+second)
		r.late.Store(int64(time.Minute))
		time.Sleep(200 * time.Second)
		if len(s.all()) != 1 {
			t.Errorf("a late tick has told of a loss again: %+v", s.all())
		}
	})
}

// Nothing is said of a loss that is none any more when its turn comes: a stream or a connection has come, or the link
// has ended.
func TestLossInTurn(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *rig, *Lane){
		"nothing": func(*testing.T, *rig, *Lane) {}, "a stream": func(_ *testing.T, _ *rig, l *Lane) { l.Touch() },
		"a connection": func(_ *testing.T, _ *rig, l *Lane) { l.down.Store(0) },
		"the link has ended": func(_ *testing.T, _ *rig,
			l *Lane) {
			go l.link.end(ending{why: "bye"})
			l.link.finish()
		},
	} {
		inFakeTime(t, name, func(t *testing.T) {
			r := newRig(t, config(), memory.Config{})
			r.dial(t).up(t, hello(1)).talk(t)
			s := r.link(t)
			l := s.link.Lanes()[1]
			time.Sleep(29 * time.Second)
			l.turn <- struct{}{}
			time.Sleep(5 * time.Second) // it is not lost while somebody has the turn
			for range 2 {               // and once
				go l.tell(r.cfg.Now(), "lost")
			}
			synctest.Wait()
			change(t, r, l)
			if len(s.all()) > 0 {
				t.Errorf("%+v", s.all())
			}
			down := l.down.Load()
			<-l.turn
			synctest.Wait()
			lost := 0
			for _, e := range s.all() {
				if e.lane == 1 {
					lost++
				}
			}
			if (name == "nothing") != (lost == 1) {
				t.Errorf("%+v", s.all())
			}
			if down == 0 {
				l.down.Store(r.cfg.Now())
			}
		})
	}
}

// Silence ends a connection after what HELLO agreed, sooner while streams are open.
func TestSilence(t *testing.T) {
	for open, limit := range []time.Duration{15 * time.Second, 3 * time.Second} {
		inFakeTime(t, fmt.Sprint(open, " open"), func(t *testing.T) {
			r := newRig(t, config(), memory.Config{})
			r.open = open
			r.dial(t).up(t, hello(1))
			begun := time.Now()
			lane := r.link(t).link.Lanes()[0]
			wait(t, "the connection's end", func() bool { return !lane.Up() })
			took(t, "dead", time.Since(begun), limit, limit+200*time.Millisecond)
		})
	}
}

// GOAWAY(draining) is said on every connection that is there, and first on all that come, of old links and of new ones.
func TestDrain(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{})
		p := r.dial(t).up(t, hello(1))
		r.Drain("the worker drains")
		data(r.link(t).link.Lanes()[0].Pipe(), "one")
		first := func(p *peer) {
			t.Helper()
			h, body, err := p.read()
			if code, text, _ := wire.ParseGoAway(body); err != nil || h.Kind != wire.GoAway ||
				code != wire.AwayDraining || text != "the worker drains" {
				t.Errorf("first came %s (%s %q), %v", h.Kind, code, text, err)
			}
		}
		first(p)
		p.expect(t, "one")
		q := r.dial(t).up(t, next(p, 0, 2))
		first(q)
		q.expect(t, "one")
		first(r.dial(t).up(t, next(p, 1, 1)))
		first(r.dial(t).up(t, hello(2)))
		if len(r.link(t).all()) > 0 {
			t.Errorf("%+v", r.link(t).all())
		}
	})
}

// Close says GOAWAY(closing) and gives peers a moment to read it: those who do cost nothing, those who do not cost no
// more than that together, whatever their handshakes wait for.
func TestClose(t *testing.T) {
	for name, reads := range map[string]bool{"peers that read": true, "peers that do not": false} {
		inFakeTime(t, name, func(t *testing.T) {
			r := newRig(t, config(), memory.Config{})
			var peers []*peer
			for i := range 20 {
				p := r.dial(t).up(t, hello(uint64(1+i)))
				peers = append(peers, p, r.dial(t).up(t, next(p, 1, 1)))
			}
			for _, p := range peers {
				if reads {
					go func() { p.away(t, wire.AwayClosing); _ = p.Close() }()
				}
			}
			h := hello(99)
			for range 300 {
				p := r.dial(t)
				p.send(t, wire.AppendHello(nil, &h)[:20])
			}
			begun := time.Now()
			if err := r.Close("the worker closes"); err != nil {
				t.Error(err)
			}
			most := goodbye / 25
			if !reads {
				most += goodbye
			}
			took(t, "closed", time.Since(begun), 0, most)
			for _, s := range r.links {
				if e := s.ends(); len(e) != 1 || e[0].protocol || e[0].why != "the worker closes" {
					t.Errorf("%+v", e)
				}
			}
			if err := r.Serve(nil); err != ErrClosed {
				t.Errorf("Serve: %v", err)
			}
			_ = r.Close("again")
		})
	}
}
