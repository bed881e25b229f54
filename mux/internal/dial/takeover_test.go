package dial

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// record is what a worker may send: an ANSWER's like of n bytes that nobody interprets here.
func record(n int) []byte {
	return append(wire.AppendHeader(nil, wire.Data, n, wire.MakeSlot(1, 1)), make([]byte, n)...)
}

// What each HELLO says, and what the two sides agree on.
func TestHellos(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 3}, memory.Config{}, nil)
		own, peer := p.link.Secrets()
		if p.link.MaxStreams() != 1000 || p.link.Peer() != workerID || p.link.Number() == 0 || own == peer ||
			own == [16]byte{} {
			t.Errorf("link %d of %s, %d streams", p.link.Number(), p.link.Peer(), p.link.MaxStreams())
		}
		seen := make(map[uint16]bool)
		for i, c := range p.w.all() {
			h := c.hello
			want := peer
			if i == 0 {
				want = [16]byte{}
			}
			if h.Lowest != wire.MinVersion || h.Highest != wire.MaxVersion || h.Node != [16]byte(frontID) ||
				h.Link != p.link.Number() ||
				h.Lanes != 3 || h.MaxStreams != 65536 || h.Received != 0 || h.Log != 1<<20 ||
				h.Resume != 10*time.Second ||
				h.Pings != ownPings || h.OwnSecret != own || h.PeerSecret != want || seen[h.Lane] || i == 0 &&
				h.Lane != 0 {
				t.Errorf("HELLO %d: %+v", i, h)
			}
			seen[h.Lane] = true
		}
		for i, l := range p.link.Lanes() {
			c := l.Connections()
			if !l.Up() || l.Plane() != transport.PlaneMemory || l.DownSince() != 0 || len(c) != 1 || c[0].To != 0 ||
				c[0].Remote == "" || c[0].Serial == 0 {
				t.Errorf("lane %d: %+v", i, c)
			}
		}
		if p.link.DownSince() != 0 || p.link.Takes() != nil {
			t.Errorf("down since %d, %v", p.link.DownSince(), p.link.Takes())
		}
		if k, err := p.Link(t.Context(), workerID); err != nil || k != p.link {
			t.Errorf("%v, %v", k, err)
		}
		if n := p.count("up"); n != 3 {
			t.Errorf("events: %s", p.testLink)
		}
	})
}

// Whatever dies when, both strings arrive whole and once.
func TestStringsOutliveConnections(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		inFakeTime(t, map[int]string{1: "one lane", 4: "four lanes"}[lanes], func(t *testing.T) {
			p := newPair(t, Config{Lanes: lanes}, memory.Config{Latency: 3 * time.Millisecond, TryWrite: lanes == 1},
				nil)
			for i := range 300 {
				for lane := range lanes {
					p.put(lane, uint64(i))
					p.w.put(p.link.Number(), lane, record(i%700))
				}
				time.Sleep(time.Duration(i%7) * time.Millisecond)
				if i%10 == 9 {
					p.net.Cut(nil)
				}
			}
			for lane := range lanes {
				p.equal(p.w, lane)
			}
			if p.count("lane lost") != 0 || p.count("lost") != 0 {
				t.Errorf("events: %s", p.testLink)
			}
			s := p.Stats()
			if n := s.Takeovers[pipe.DownPeer].Count; n < 20 || s.Takeovers[pipe.DownPeer].Time == 0 ||
				s.Down < s.Takeovers[pipe.DownPeer].Time {
				t.Errorf("%+v", s)
			}
			for _, l := range p.link.Lanes() {
				c := l.Connections()
				if len(c) != maxHistory || c[0].To == 0 || c[0].To > c[1].From || c[7].To != 0 ||
					c[0].Serial >= c[1].Serial {
					t.Errorf("history %+v", c)
				}
			}
		})
	}
}

// The answer of the first HELLO may be lost as often as it likes: the HELLO is said again, the same but for its serial.
func TestFirstHelloIsRepeated(t *testing.T) {
	for name, lose := range map[string]func(c *workerConn) bool{
		"before": func(c *workerConn) bool { return false },
		"in the middle": func(c *workerConn) bool {
			own := c.w.answer(c.hello)
			_, _ = c.conn.Write(wire.AppendHello(nil, own)[:50])
			return false
		},
		"behind": func(c *workerConn) bool { // the worker has taken it, and the answer is lost
			c.w.mu.Lock()
			c.w.links[c.hello.Link] = &workerLink{front: c.hello.OwnSecret, own: [16]byte{9},
				lanes: []*workerLane{{serial: c.hello.Serial}, {}}}
			c.w.mu.Unlock()
			return false
		},
	} {
		inFakeTime(t, name, func(t *testing.T) {
			p := newPair(t, Config{Lanes: 2}, memory.Config{},
				func(c *workerConn) bool { return len(c.w.all()) > 3 || lose(c) })
			p.up(t)
			all := p.w.all()
			first := all[0].hello
			for i, c := range all[:4] {
				h := c.hello
				if h.Link != first.Link || h.OwnSecret != first.OwnSecret || h.PeerSecret != [16]byte{} ||
					h.Lane != 0 || h.Received != 0 ||
					i > 0 && h.Serial <= all[i-1].hello.Serial {
					t.Errorf("HELLO %d: %+v", i, h)
				}
			}
			if len(all) != 5 || len(p.front.all()) != 1 {
				t.Errorf("%d HELLOs, %d links", len(all), len(p.front.all()))
			}
		})
	}
	inFakeTime(t, "refused", func(t *testing.T) { // an answer that is none ends it: the next one is of another link
		p := newPair(t, Config{}, memory.Config{}, func(c *workerConn) bool {
			if len(c.w.all()) > 1 {
				return true
			}
			pipe.Refuse(c.conn, nil, wire.AwayUnknownLink, "no")
			return false
		})
		p.up(t)
		if all := p.w.all(); all[0].hello.Link == all[1].hello.Link ||
			all[0].hello.OwnSecret == all[1].hello.OwnSecret {
			t.Errorf("%+v, %+v", all[0].hello, all[1].hello)
		}
	})
}

// A lane that is without a connection for the agreed time is lost, while it is dialled on; when all are, the link is.
func TestLanesAndLinkAreLostInTime(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 2, Resume: 20 * time.Second}, memory.Config{}, nil)
		p.w.set(func() {
			p.w.resume = 4 * time.Second // of the next HELLO on
			p.w.script = func(c *workerConn) bool { return c.hello.Lane == 1 }
		})
		begun := time.Now()
		p.net.Cut(nil)
		waitFor(t, "the loss of lane 0", func() bool { return p.count("lane lost 0") == 1 })
		took(t, "lost", begun, 4*time.Second-tickEvery, 4*time.Second+2*tickEvery)
		if k := p.link; k.Lanes()[0].Up() || !k.Lanes()[1].Up() || k.Takes() != nil || k.DownSince() != 0 ||
			k.Lanes()[0].DownSince() == 0 {
			t.Errorf("lane 1 should carry on: %s", p.testLink)
		}
		time.Sleep(time.Minute)
		if p.count("lane lost 0") != 1 || p.count("lane lost 1") != 0 {
			t.Errorf("events: %s", p.testLink)
		}
		p.w.set(func() { p.w.script = nil })
		waitFor(t, "lane 0", func() bool { return p.count("up 0") == 2 })
		p.put(0, 1)
		p.equal(p.w, 0)

		p.silence()
		p.net.Cut(nil)
		begun = time.Now()
		waitFor(t, "the loss", func() bool { return p.count("lost") == 1 })
		took(t, "lost", begun, 4*time.Second-tickEvery, 4*time.Second+2*tickEvery)
		if p.count("lane lost 0") != 2 || p.count("lane lost 1") != 1 ||
			p.count("lost false no lane to the worker") != 1 {
			t.Errorf("events: %s", p.testLink)
		}
		if err := p.link.Takes(); !errors.Is(err, ErrNoLink) {
			t.Error(err)
		}
	})
	inFakeTime(t, "resume off", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 2, Resume: -1}, memory.Config{}, nil)
		begun := time.Now()
		p.net.Conns()[1].Cut(nil)
		waitFor(t, "lane 1 again", func() bool { return p.count("up 1") == 2 })
		took(t, "again", begun, 0, 100*time.Millisecond)
		if s := p.String(); !strings.Contains(s, "lane lost 1; up 1") || strings.Contains(s, "lane lost 0") {
			t.Errorf("events: %s", s)
		}
		p.put(1, 1)
		p.equal(p.w, 1)
	})
}

// A process that was stopped does not take its own silence for its peers'.
func TestLateTicksMoveDeadlines(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, Config{Resume: 20 * time.Second}, memory.Config{}, nil)
		p.silence()
		p.net.Cut(nil)
		time.Sleep(5 * time.Second)
		p.stall.Store(int64(time.Hour))
		time.Sleep(time.Hour + 4*time.Second)
		if p.count("lane lost") != 0 {
			t.Fatalf("events: %s", p.testLink)
		}
		p.allow()
		waitFor(t, "the lane", func() bool { return p.count("up 0") == 2 })
		p.put(0, 1)
		p.equal(p.w, 0)
	})
}

// What says that the worker, or its life of the link, has gone ends it at once; what does not, does not.
func TestEvidence(t *testing.T) {
	refuseWith := func(code wire.GoAwayCode) func(*pair) {
		return func(p *pair) {
			p.w.set(func() {
				p.w.script = func(c *workerConn) bool { pipe.Refuse(c.conn, nil, code, "so"); return false }
			})
			p.net.Cut(nil)
		}
	}
	for name, c := range map[string]struct {
		fault func(*pair)
		lost  string // "": it is not
	}{
		"refused on every port": {func(p *pair) { p.refuse(); p.net.Cut(nil) }, "lost false every endpoint refused"},
		"refused on one port": {func(p *pair) {
			p.net.Refuse(p.addr[0],
				nil)
			p.net.Silence(p.addr[1])
			p.net.Cut(nil)
		}, ""},
		"another node": {func(p *pair) {
			p.w.set(func() { p.w.id = transport.NodeID{0x77} })
			p.net.Cut(nil)
		}, "lost false transport: "},
		"unknown link":            {refuseWith(wire.AwayUnknownLink), "lost false the peer refused: unknown link"},
		"the worker closes":       {refuseWith(wire.AwayClosing), "lost false the peer refused: closing"},
		"protocol":                {refuseWith(wire.AwayProtocol), "lost true the peer refused: protocol"},
		"no room for a handshake": {refuseWith(wire.AwayLimit), ""},
		"one lane is still up": {func(p *pair) {
			p.w.set(func() {
				p.w.script = func(c *workerConn) bool {
					pipe.Refuse(c.conn, nil, wire.AwayUnknownLink,
						"so")
					return false
				}
			})
			p.net.Conns()[0].Cut(nil)
		}, ""},
		"it says protocol on one lane": {func(p *pair) {
			p.w.all()[0].send(wire.AppendGoAway(nil, wire.AwayProtocol,
				"so"))
		}, "lost true the peer refused: protocol"},
		"it says closing on one lane": {func(p *pair) {
			p.w.all()[0].send(wire.AppendGoAway(nil, wire.AwayClosing,
				"so"))
		}, "lost false the peer refused: closing"},
		"garbage on one lane": {func(p *pair) { p.w.all()[0].send([]byte("GET / HTTP/1.1\r\n\r\n")) },
			"lost true "},
		"it received what was not sent": {func(p *pair) {
			p.w.set(func() { p.w.links[p.link.Number()].lanes[0].got = make([]byte, 1000) })
			p.net.Cut(nil)
		}, "lost true wire: HELLO"},
	} {
		inFakeTime(t, name, func(t *testing.T) {
			p := newPair(t, Config{Lanes: 2}, memory.Config{}, nil)
			first := p.w.all()
			c.fault(p)
			time.Sleep(400 * time.Millisecond)
			s := p.String()
			switch {
			case c.lost == "" && strings.Contains(s, "lost"):
				t.Errorf("it is no reason to give the link up: %s", s)
			case c.lost != "" && !strings.Contains(s, c.lost):
				t.Errorf("expected %q: %s", c.lost, s)
			}
			if strings.HasPrefix(c.lost, "lost true") && strings.Contains(name, "on one lane") {
				time.Sleep(time.Second)
				if _, away := first[1].ended(); !slices.Contains(away, wire.AwayProtocol) {
					t.Errorf("the other lane was not told: %v", away)
				}
			}
		})
	}
}

// A suspicion is settled by any sign of life. Without one for a second the connections are dead, and the next dial
// decides.
func TestSuspect(t *testing.T) {
	inFakeTime(t, "alive", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 2}, memory.Config{}, nil)
		p.Suspect(workerID)
		time.Sleep(10 * time.Second)
		if p.count("up") != 2 || p.link.suspect.Load() != 0 {
			t.Errorf("events: %s", p.testLink)
		}
	})
	inFakeTime(t, "alive, in a process that was stopped", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 2}, memory.Config{}, nil)
		p.w.set(func() { p.w.mute = true })
		p.Suspect(workerID)
		p.stall.Store(int64(5 * time.Second))
		time.Sleep(5*time.Second + 200*time.Millisecond)
		p.w.all()[0].send(wire.AppendPing(nil, wire.Pong, 1, 0))
		time.Sleep(700 * time.Millisecond)
		p.w.all()[0].send(wire.AppendPing(nil, wire.Pong, 1, 0))
		time.Sleep(time.Second)
		if p.count("up") != 2 {
			t.Errorf("events: %s", p.testLink)
		}
	})
	inFakeTime(t, "mute, and there", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 2}, memory.Config{}, nil)
		time.Sleep(time.Millisecond) // else the lanes' beginning is a sign of life
		p.net.Stall()
		begun := time.Now()
		p.Suspect(workerID)
		time.Sleep(500 * time.Millisecond)
		p.net.SetLatency(0)
		waitFor(t, "the deaths", func() bool { return !p.link.Lanes()[0].Up() || !p.link.Lanes()[1].Up() })
		took(t, "dead", begun, suspectFor, suspectFor+2*tickEvery)
		p.net.Release()
		waitFor(t, "both lanes", func() bool { return p.count("up") == 4 })
		if p.count("lost")+p.count("lane lost") != 0 || p.Stats().Takeovers[pipe.DownSilent].Count != 2 {
			t.Errorf("events: %s; %+v", p.testLink, p.Stats().Takeovers)
		}
		p.put(1, 5)
		p.equal(p.w, 1)
	})
	inFakeTime(t, "gone", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 2}, memory.Config{}, nil)
		time.Sleep(time.Millisecond)
		p.net.Stall()
		p.refuse()
		begun := time.Now()
		p.Suspect(workerID)
		waitFor(t, "the loss", func() bool { return p.count("lost false every endpoint refused") == 1 })
		took(t, "lost", begun, suspectFor, suspectFor+2*tickEvery)
	})
}
