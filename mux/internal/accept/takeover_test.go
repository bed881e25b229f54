package accept

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// consumed is a counted record of a frontend.
var consumed = wire.AppendConsumed(nil, wire.MakeSlot(1, 1), 1, 5)

func data(p *pipe.Pipe, body string) {
	p.Lock()
	p.Append(pipe.Bulk, wire.Data, wire.MakeSlot(1, 1), []byte(body))
	p.FlushLocked(pipe.ByFlush)
}

// expect reads the next counted record.
func (p *peer) expect(t *testing.T, body string) {
	t.Helper()
	for {
		h, b, err := p.read()
		if err != nil {
			t.Fatalf("waiting for %q: %v", body, err)
		}
		if !h.Kind.Counted() {
			continue
		}
		if !bytes.Equal(b, []byte(body)) {
			t.Fatalf("%s %q, expected %q", h.Kind, b, body)
		}
		return
	}
}

// A lane goes on where both sides are, whether its connection has died or is replaced on purpose.
func TestTakeover(t *testing.T) {
	for name, planned := range map[string]bool{"planned": true, "after a death": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, config(), memory.Config{})
			p := r.dial(t).up(t, hello(1))
			s := r.link(t)
			l := s.link.Lanes()[0]
			data(l.Pipe(), "one")
			data(l.Pipe(), "two")
			p.expect(t, "one")
			p.expect(t, "two")
			p.send(t, consumed)
			p.send(t, consumed)
			wait(t, "what was sent", func() bool { return l.Pipe().Received() == uint64(2*len(consumed)) })
			if !planned {
				_ = p.Close()
				wait(t, "the death", func() bool { return !l.Up() })
				data(l.Pipe(), "three")
			}
			h := next(p, 0, 2)
			h.Received = uint64(wire.HeaderSize + 3) // of the first record only
			q := r.dial(t).up(t, h)
			if q.worker.Received != uint64(2*len(consumed)) {
				t.Errorf("the worker says %d bytes received", q.worker.Received)
			}
			if planned {
				p.dead(t)
				data(l.Pipe(), "three")
			}
			q.expect(t, "two")
			q.expect(t, "three")
			q.send(t, consumed)
			wait(t, "what was sent then", func() bool { return l.Pipe().Received() == uint64(3*len(consumed)) })
			past := l.Connections()
			if len(past) != 2 || past[0].To == 0 || past[1].To != 0 || past[1].Serial != 2 ||
				past[1].From < past[0].To || !l.Up() ||
				l.Plane() != "memory" {
				t.Errorf("connections %+v, up %v on %q", past, l.Up(), l.Plane())
			}
			if st := r.Stats(); st.Planned+st.Resumed != 1 || (st.Planned == 1) != planned || st.Up != 1 {
				t.Errorf("%+v", st)
			}
			if len(s.all()) > 0 {
				t.Errorf("%v", s.all())
			}
		})
	}
}

// What a lane remembers of its connections is bounded.
func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t, config(), memory.Config{})
	p := r.dial(t).up(t, hello(1))
	for serial := uint64(2); serial <= 30; serial++ {
		r.dial(t).up(t, next(p, 0, serial))
	}
	lane := r.link(t).link.Lanes()[0]
	wait(t, "the last one", func() bool { return lane.Connections()[len(lane.Connections())-1].Serial == 30 })
	past := lane.Connections()
	if len(past) != maxPast || past[0].Serial != 30-maxPast+1 {
		t.Errorf("%+v", past)
	}
}

// Takeovers of a lane run one at a time: the answer comes when the old reader has returned, however long a record
// takes; of those that wait the one with the highest serial has the lane, and the others are refused. The other lane
// does not wait.
func TestTakeoversInTurn(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{})
		release := make(chan struct{})
		var once sync.Once
		free := func() { once.Do(func() { close(release) }) }
		t.Cleanup(free)
		r.record = func(lane int, _ wire.Header) error {
			if lane == 0 {
				<-release
			}
			return nil
		}
		p := r.dial(t).up(t, hello(1))
		p.send(t, consumed)
		synctest.Wait()
		errs := make([]error, 4)
		took := make([]time.Duration, len(errs))
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range errs {
			q, h := r.dial(t), next(p, 0, uint64(2+i))
			wg.Go(func() {
				errs[i] = q.greet(t, h)
				took[i] = time.Since(begun)
				if errs[i] == nil && q.worker.Received != uint64(len(consumed)) {
					t.Errorf("answered by %d bytes received", q.worker.Received)
				}
			})
			synctest.Wait()
		}
		r.dial(t).up(t, next(p, 1, 1))
		time.Sleep(2 * time.Second)
		free()
		wg.Wait()
		for i, err := range errs {
			var away *pipe.AwayError
			switch {
			case took[i] < 2*time.Second:
				t.Errorf("serial %d was answered after %v: %v", 2+i, took[i], err)
			case i == 0: // in turn already: it was answered, and then taken over, perhaps before it read that
			case i == len(errs)-1:
				if err != nil {
					t.Errorf("serial %d: %v", 2+i, err)
				}
			case !errors.As(err, &away) || away.Code != wire.AwayLimit:
				t.Errorf("serial %d: %v", 2+i, err)
			}
		}
		synctest.Wait()
		past := r.link(t).link.Lanes()[0].Connections()
		if last := past[len(past)-1]; last.Serial != 5 || last.To != 0 {
			t.Errorf("%+v", past)
		}
	})
}

// A takeover whose turn comes when its link has ended finds it unknown.
func TestTurnAfterTheEnd(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{})
		p := r.dial(t).up(t, hello(1))
		synctest.Wait()
		k := r.link(t).link
		l := k.Lanes()[0]
		l.turn <- struct{}{}
		q, h := r.dial(t), next(p, 0, 2)
		done := make(chan struct{})
		go func() { defer close(done); q.refusedAs(t, h, wire.AwayUnknownLink) }()
		synctest.Wait()
		k.finish()
		<-l.turn
		<-done
		k.end(ending{why: "bye"})
	})
}

// A `received` that cannot be ends the link as a violation, on all its lanes.
func TestReceivedOutOfRange(t *testing.T) {
	for name, received := range map[string]uint64{"more than was sent": 12, "less than was acknowledged": 10} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, config(), memory.Config{})
			p := r.dial(t).up(t, hello(1))
			other := r.dial(t).up(t, next(p, 1, 1))
			s := r.link(t)
			data(s.link.Lanes()[0].Pipe(), "one")
			p.expect(t, "one")
			p.send(t, wire.AppendAck(nil, 11))
			wait(t, "the acknowledgement", s.link.Lanes()[0].Pipe().Settled)
			h := next(p, 0, 2)
			h.Received = received
			r.dial(t).refusedAs(t, h, wire.AwayProtocol)
			other.away(t, wire.AwayProtocol)
			if e := s.ended(t); !e.protocol {
				t.Errorf("%+v", e)
			}
			r.dial(t).refusedAs(t, next(p, 0, 3), wire.AwayUnknownLink)
		})
	}
}

// What a frontend's records do that breaks the protocol ends its link, once, and no other one.
func TestViolation(t *testing.T) {
	r := newRig(t, config(), memory.Config{})
	p := r.dial(t).up(t, hello(1))
	other := r.dial(t).up(t, next(p, 1, 1))
	second := hello(2)
	second.Node[3] = 1
	bystander := r.dial(t).up(t, second)
	s := r.link(t)
	data(s.link.Lanes()[0].Pipe(), "never read")
	r.mu.Lock()
	r.record = func(lane int, h wire.Header) error {
		if h.Kind == wire.Kill {
			return &wire.Error{Kind: h.Kind, Slot: h.Slot, Reason: "breaks a rule"}
		}
		return nil
	}
	r.mu.Unlock()
	p.send(t, wire.AppendKill(nil, wire.MakeSlot(1, 1), 9, wire.EndKilled))
	other.away(t, wire.AwayProtocol)
	_ = other.Close()
	if e := s.ended(t); !e.protocol || e.why != "wire: KILL of slot 1.1 breaks a rule" {
		t.Errorf("%+v", e)
	}
	wait(t, "the link's going", func() bool { return r.Link(frontID, 1) == nil })
	if kept, unsent := s.link.Lanes()[0].Pipe().Log(); kept+unsent != 0 {
		t.Errorf("%d and %d bytes are left of the link", kept, unsent)
	}
	bystander.send(t, consumed)
	b := r.of(r.Link(second.Node, 2))
	wait(t, "a record of the other link", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.got[0] == 1 })
	r.dial(t).up(t, hello(1)) // the number is free again
}

// What a frontend's GOAWAY does.
func TestAwayOfTheFrontend(t *testing.T) {
	for _, c := range []struct {
		code           wire.GoAwayCode
		ends, protocol bool
	}{
		{wire.AwayClosing, true, false}, {wire.AwayUnknownLink, true, false}, {wire.AwayProtocol, true, true},
		{wire.AwayDraining, false, false}, {wire.AwayLimit, false, false}, {wire.AwayVersion, false, false},
		{wire.AwayIdentity, false, false},
	} {
		t.Run(c.code.String(), func(t *testing.T) {
			r := newRig(t, config(), memory.Config{})
			p := r.dial(t).up(t, hello(1))
			other := r.dial(t).up(t, next(p, 1, 1))
			s := r.link(t)
			p.send(t, wire.AppendGoAway(nil, c.code, "text"))
			if c.ends {
				if e := s.ended(t); e.protocol != c.protocol {
					t.Errorf("%+v", e)
				}
				other.dead(t)
				return
			}
			if c.code != wire.AwayDraining {
				wait(t, "the connection's end", func() bool { return !s.link.Lanes()[0].Up() })
			}
			other.send(t, consumed)
			wait(t, "a record of the other lane",
				func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.got[1] == 1 })
			if !s.link.Lanes()[1].Up() || len(s.all()) > 0 || (c.code == wire.AwayDraining) != s.link.Lanes()[0].Up() {
				t.Errorf("lanes up: %v, %v; told: %v", s.link.Lanes()[0].Up(), s.link.Lanes()[1].Up(), s.all())
			}
		})
	}
}

// The link is there, and its lanes have pipes, before a record of it is read; the layer above may take its time.
func TestBeginComesFirst(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{})
		r.begin = func(k *Link) {
			if r.Link(frontID, 1) != nil || len(r.Links.Links())+len(r.Pipes()) > 0 || r.Newest(frontID) != nil {
				t.Error("others see a link that the layer above has not begun")
			}
			time.Sleep(time.Second)
		}
		h := hello(1)
		first := r.dial(t)
		first.send(t, append(wire.AppendHello(nil, &h), consumed...))
		time.Sleep(500 * time.Millisecond)
		again := r.dial(t)
		h.Serial = 2
		begun := time.Now()
		again.up(t, h)
		took(t, "the repeat", time.Since(begun), 500*time.Millisecond, 510*time.Millisecond)
		if len(r.links) != 1 {
			t.Errorf("%d links", len(r.links))
		}
	})
}
