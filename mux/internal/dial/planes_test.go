package dial

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// twoPlanes is a frontend and a worker that share two planes; the frontend prefers fast.
type twoPlanes struct {
	*front
	w          *worker
	fast, safe *memory.Network
	addr       map[string][]string // the worker's endpoints
	*testLink
}

// newTwoPlanes starts both sides and waits for all lanes; before, if not nil, is called before the frontend knows the
// worker.
func newTwoPlanes(t *testing.T, cfg Config, before func(*twoPlanes)) *twoPlanes {
	t.Helper()
	p := &twoPlanes{w: newWorker(t, workerID), addr: make(map[string][]string),
		fast: memory.NewNetwork(memory.Config{Plane: planeFast}),
		safe: memory.NewNetwork(memory.Config{Plane: planeSafe})}
	for name, n := range map[string]*memory.Network{planeFast: p.fast, planeSafe: p.safe} {
		p.addr[name] = p.w.listen(n.Transport(workerID), "worker:0", 2)
	}
	p.front = newFront(t, cfg, p.fast.Transport(frontID), p.safe.Transport(frontID))
	if before != nil {
		before(p)
	}
	add(t, p.front, p.peer(planeFast, planeSafe))
	awaitUp(t, p.front, workerID, guard)
	p.testLink = p.front.last()
	waitFor(t, "all lanes", func() bool { return p.link.up() == len(p.link.Lanes()) })
	return p
}

func (p *twoPlanes) peer(planes ...string) Peer {
	d := Peer{ID: workerID}
	for _, name := range planes {
		d.Planes = append(d.Planes, PeerPlane{name, p.addr[name]})
	}
	return d
}

// deny applies a fault to every endpoint of a plane.
func (p *twoPlanes) deny(plane string, fault func(address string)) {
	for _, a := range p.addr[plane] {
		fault(a)
	}
}

func refused(n *memory.Network) func(string) {
	return func(a string) { n.Refuse(a, syscall.ECONNREFUSED) }
}

// waitForFast waits for all lanes on the better plane; its next try may be over a minute away.
func (p *twoPlanes) waitForFast(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(2 * preferAgain); p.lanesOn(planeFast) < len(p.link.Lanes()) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if p.lanesOn(planeFast) < len(p.link.Lanes()) {
		t.Fatalf("%d lanes are on the better plane", p.lanesOn(planeFast))
	}
}

func (p *twoPlanes) fallbacks() string {
	s := ""
	for _, f := range p.Stats().Fallbacks {
		s += fmt.Sprintf("%s>%s %s %d;", f.From, f.To, f.Reason, f.Links)
	}
	return s
}

// carry has a record go each way on a lane, and checks all of both strings.
func (p *twoPlanes) carry(lane int) {
	p.t.Helper()
	p.put(lane, uint64(lane))
	p.w.put(p.link.Number(), lane, record(64))
	p.equal(p.w, lane)
}

// A link that fell back is back on the better plane within a minute and a bit of that plane's return, lane by lane, and
// nothing is lost.
func TestPreferredPlaneIsTriedAgain(t *testing.T) {
	for _, resume := range []time.Duration{0, -1} { // without resuming, too: a planned takeover is no death
		inFakeTime(t, fmt.Sprintf("resume=%v", resume), func(t *testing.T) {
			begun := time.Now()
			p := newTwoPlanes(t, Config{Lanes: 3, PlaneLanes: map[string]int{planeSafe: 2}, Resume: resume},
				func(p *twoPlanes) {
					p.deny(planeFast, p.fast.Silence)
				})
			took(t, "fell back", begun, fallbackAfter, fallbackAfter+100*time.Millisecond)
			if p.lanesOn(planeSafe) != 2 || p.fallbacks() != "fast>safe timeout 1;" {
				t.Errorf("%d lanes, fallbacks %s", p.lanesOn(planeSafe), p.fallbacks())
			}
			if st := p.state(workerID); st.Plane != planeSafe || !errors.Is(st.Fallback, context.DeadlineExceeded) {
				t.Errorf("state %+v", st)
			}
			p.carry(0)
			time.Sleep(3 * preferAgain) // it is tried and fails, and nothing changes
			p.carry(1)
			if p.lanesOn(planeFast) != 0 || p.lanesOn(planeSafe) != 2 || p.fallbacks() != "fast>safe timeout 1;" ||
				len(p.w.all()) != 2 {
				t.Errorf("%d and %d lanes, fallbacks %s", p.lanesOn(planeFast), p.lanesOn(planeSafe), p.fallbacks())
			}

			p.deny(planeFast, p.fast.Allow)
			begun = time.Now()
			p.waitForFast(t)
			took(t, "tried again", begun, 0, preferAgain+preferAgain/12+fallbackAfter)
			synctest.Wait()
			if st := p.state(workerID); st.Fallback != nil || st.Plane != planeFast || st.Lanes != 2 {
				t.Errorf("state %+v", st)
			}
			p.carry(0)
			p.carry(1)
			s := p.Stats()
			if s.Takeovers[byPlan].Count != 2 || p.count("lane lost") != 0 || p.count("up") != 4 ||
				p.link.Lanes()[1].Connections()[0].Plane != planeSafe {
				t.Errorf("%+v; events: %s", s, p.testLink)
			}
			if d := p.pipes.Deaths.Snapshot(); d[pipe.DownClosed] != 2 || d[pipe.DownPeer] != 0 {
				t.Errorf("deaths %v", d)
			}
			if len(p.safe.Conns()) != 0 {
				t.Error("old connections are left")
			}
		})
	}
}

// A planned takeover touches the old connection only when the new one has its transport's handshake; the HELLO comes
// after the old one has been closed.
func TestPlannedTakeoverDialsFirst(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{Lanes: 1}, func(p *twoPlanes) { p.deny(planeFast, p.fast.Silence) })
		old := p.w.all()[0]
		p.w.set(func() {
			p.w.script = func(c *workerConn) bool {
				time.Sleep(time.Second) // before the answer
				return true
			}
		})
		p.deny(planeFast, p.fast.Allow)
		for len(p.w.all()) == 1 {
			p.put(0, 1)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if at, _ := old.ended(); at.IsZero() {
			t.Error("the HELLO came before the old connection was closed")
		}
		if l := p.link.Lanes()[0]; l.Up() || l.DownSince() == 0 || p.link.Takes() == nil {
			t.Error("a lane between two connections is said to be up")
		}
		p.waitForFast(t)
		p.carry(0)
		if s := p.Stats(); s.Takeovers[byPlan].Count != 1 || s.Takeovers[byPlan].Time != time.Second ||
			s.Takeovers[byPlan].Buckets[6] != 1 {
			t.Errorf("%+v", s.Takeovers)
		}
	})
	inFakeTime(t, "a batch under way", func(t *testing.T) { // is handled before HELLO says how much was
		p := newTwoPlanes(t, Config{}, func(p *twoPlanes) { p.deny(planeFast, p.fast.Silence) })
		p.deny(planeFast, p.fast.Allow)
		for p.link.untilAgain() > time.Second {
			time.Sleep(p.link.untilAgain() - time.Second)
		}
		stuck := make(chan struct{})
		p.stuck.Store(&stuck)
		p.w.put(p.link.Number(), 0, record(100))
		time.Sleep(2 * time.Second)
		if len(p.w.all()) != 1 || p.link.Lanes()[0].Up() {
			t.Errorf("%d HELLOs; is a takeover under way: %t", len(p.w.all()), !p.link.Lanes()[0].Up())
		}
		p.stuck.Store(nil)
		close(stuck)
		p.waitForFast(t)
		p.carry(0)
	})
	inFakeTime(t, "no answer", func(t *testing.T) { // the lane is back where it was
		p := newTwoPlanes(t, Config{Lanes: 2}, func(p *twoPlanes) { p.deny(planeFast, p.fast.Silence) })
		p.w.set(func() { p.w.script = func(c *workerConn) bool { return c.conn.Info().Plane == planeSafe } })
		p.deny(planeFast, p.fast.Allow)
		time.Sleep(preferAgain + preferAgain/12 + 100*time.Millisecond)
		if p.lanesOn(planeSafe) != 2 || p.count("up 0") != 2 || p.count("up 1") != 1 ||
			p.state(workerID).Fallback == nil {
			t.Errorf("%d lanes; events: %s; %+v", p.lanesOn(planeSafe), p.testLink, p.state(workerID))
		}
		p.carry(0)
		p.carry(1)
	})
}

// The death of a connection ends the planned dial of its lane, and where the lane was is dialled.
func TestDeathCancelsThePlannedDial(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{}, func(p *twoPlanes) { p.deny(planeFast, p.fast.Silence) })
		for p.link.untilAgain() > 0 {
			time.Sleep(p.link.untilAgain())
		}
		time.Sleep(time.Second) // the silent plane is being dialled
		if abort := func() bool { l := p.link.Lanes()[0]; l.mu.Lock(); defer l.mu.Unlock(); return l.abort != nil }; !abort() {
			t.Fatal("no planned dial")
		}
		begun := time.Now()
		p.w.put(p.link.Number(), 0, record(1))
		synctest.Wait()
		p.safe.Cut(nil)
		p.put(0, 1)
		p.equal(p.w, 0)
		took(t, "back", begun, 0, 20*time.Millisecond)
		if p.lanesOn(planeSafe) != 1 || p.Stats().Takeovers[pipe.DownPeer].Count != 1 {
			t.Errorf("%+v", p.Stats())
		}
	})
}

// When a plane stops, the link goes on over the other one.
func TestLinkGoesOnOverAnotherPlane(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  func(*twoPlanes)
		reason string
		within time.Duration
	}{
		{"blocked", func(p *twoPlanes) { p.deny(planeFast, p.fast.Silence); p.fast.Stall() }, "timeout",
			4500 * time.Millisecond},
		{"refused", func(p *twoPlanes) { p.deny(planeFast, refused(p.fast)); p.fast.Cut(nil) }, "refused", time.Second},
		{"no more in the record", func(p *twoPlanes) {
			if err := p.Add(p.peer(planeSafe)); err != nil {
				panic(err)
			}
			p.fast.Cut(nil)
		}, "", time.Second},
	} {
		inFakeTime(t, c.name, func(t *testing.T) {
			p := newTwoPlanes(t, Config{Lanes: 2}, nil)
			p.open.Store(1)
			time.Sleep(2 * time.Second)
			begun := time.Now()
			c.fault(p)
			p.carry(0)
			p.carry(1)
			took(t, "goes on", begun, 0, c.within)
			want := "fast>safe " + c.reason + " 1;"
			if c.reason == "" { // fast is not a plane of both any more, so nothing fell back
				want = ""
			}
			if p.lanesOn(planeSafe) != 2 || p.fallbacks() != want || p.Stats().Takeovers[byFallback].Count != 2 {
				t.Errorf("%d lanes, fallbacks %q, expected %q; %+v", p.lanesOn(planeSafe), p.fallbacks(), want,
					p.Stats())
			}
		})
	}
}

// A plane of which only the port of the link's one lane is blocked stays the link's.
func TestOneSilentPortIsNoReasonToFallBack(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{}, nil)
		p.open.Store(1)
		time.Sleep(2 * time.Second)
		begun := time.Now()
		p.fast.Silence(p.link.Lanes()[0].Connections()[0].Remote)
		for _, c := range p.fast.Conns() {
			c.Stall()
			c.Peer().Stall()
		}
		p.carry(0)
		took(t, "goes on", begun, 0, 4*time.Second)
		if p.lanesOn(planeFast) != 1 || p.fallbacks() != "" {
			t.Errorf("%d lanes, fallbacks %q", p.lanesOn(planeFast), p.fallbacks())
		}
	})
}

// Whoever waits for a link that is without a lane is told when it has one, and when it is lost.
func TestAwaitReturn(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{Lanes: 2}, nil)
		p.open.Store(1)
		if err := p.AwaitReturn(t.Context(), workerID); err != nil || !p.UpSoon(workerID) {
			t.Errorf("a link that is up: %v", err)
		}
		down := func(planes ...string) (begun time.Time) {
			for _, plane := range planes {
				p.deny(plane, map[string]*memory.Network{planeFast: p.fast, planeSafe: p.safe}[plane].Silence)
			}
			p.fast.Stall()
			p.safe.Stall()
			waitFor(t, "no lane", func() bool { return !p.Up(workerID) })
			if !p.UpSoon(workerID) {
				t.Error("a link that is down is said to be lost")
			}
			return time.Now()
		}
		begun := down(planeFast)
		p.safe.Release()
		if err := p.AwaitReturn(t.Context(), workerID); err != nil || !p.Up(workerID) {
			t.Errorf("the link came back, but: %v", err)
		}
		took(t, "came back", begun, fallbackMute-10*time.Millisecond, fallbackMute+100*time.Millisecond)
		p.carry(0)

		begun = down(planeFast, planeSafe)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.AwaitReturn(short, workerID); !errors.Is(err, ErrNoLink) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who waits for a second is told: %v", err)
		}
		if err := p.AwaitReturn(t.Context(), workerID); !errors.Is(err, ErrNoLink) || p.UpSoon(workerID) {
			t.Errorf("the link is lost, but: %v", err)
		}
		took(t, "lost", begun, 10*time.Second-tickEvery, 10*time.Second+2*tickEvery)
	})
}

// However many lanes a link has, those without a stream are found dead as soon as those with one.
func TestDeadLanesAreFoundTogether(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{Lanes: 16}, nil)
		p.open.Store(1)
		time.Sleep(30 * time.Second)
		p.deny(planeFast, p.fast.Silence)
		p.fast.Stall()
		begun := time.Now()
		waitFor(t, "all lanes elsewhere", func() bool { return p.lanesOn(planeSafe) == 16 })
		took(t, "goes on", begun, 0, 5*time.Second)
		if p.fallbacks() != "fast>safe timeout 1;" {
			t.Errorf("fallbacks %s", p.fallbacks())
		}
	})
}

// A node that refuses on every plane is gone at once; one that refuses on one plane and is silent on the other may come
// back.
func TestRefusedOnEveryPlane(t *testing.T) {
	inFakeTime(t, "every", func(t *testing.T) {
		p := newTwoPlanes(t, Config{}, nil)
		begun := time.Now()
		p.deny(planeFast, refused(p.fast))
		p.deny(planeSafe, refused(p.safe))
		p.fast.Cut(nil)
		waitFor(t, "the loss", func() bool { return p.count("lost") == 1 })
		took(t, "lost", begun, 0, 100*time.Millisecond)
	})
	inFakeTime(t, "one", func(t *testing.T) {
		p := newTwoPlanes(t, Config{}, nil)
		p.deny(planeFast, refused(p.fast))
		p.deny(planeSafe, p.safe.Silence)
		p.fast.Cut(nil)
		time.Sleep(6 * time.Second)
		p.deny(planeSafe, p.safe.Allow)
		p.carry(0)
	})
}

// A better plane that dies within a minute of the return to it is tried again after 2, 4, .. 60 minutes; one that held
// out for longer, after one.
func TestPlaneThatDiesAgainIsTriedMoreRarely(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{Lanes: 2}, nil)
		fail := func() (at time.Time) {
			p.deny(planeFast, refused(p.fast))
			p.fast.Cut(nil)
			waitFor(t, "the fallback", func() bool { return p.lanesOn(planeSafe) == 2 })
			p.deny(planeFast, p.fast.Allow)
			return time.Now()
		}
		back := func(at time.Time, after time.Duration) {
			t.Helper()
			time.Sleep(after - time.Second)
			if p.lanesOn(planeSafe) != 2 {
				t.Errorf("it was tried before %v", after)
			}
			for end := time.Now().Add(after/12 + 2*time.Second); p.lanesOn(planeFast) != 2 && time.Now().Before(end); {
				time.Sleep(time.Second)
			}
			if p.lanesOn(planeFast) != 2 {
				t.Errorf("it was not tried after %v", after)
			}
		}
		time.Sleep(10 * time.Minute)
		back(fail(), preferAgain)
		for _, minutes := range []int{2, 4, 8, 16, 32, 60, 60} {
			time.Sleep(10 * time.Second)
			back(fail(), time.Duration(minutes)*time.Minute)
		}
		time.Sleep(10 * time.Minute)
		back(fail(), preferAgain)
		p.carry(0)
		p.carry(1)
	})
}

// One endpoint that says nothing costs a lane a second, not its dial.
func TestSilentEndpoint(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		begun := time.Now()
		p := newTwoPlanes(t, Config{Lanes: 2}, func(p *twoPlanes) { p.fast.Silence(p.addr[planeFast][0]) })
		took(t, "up", begun, 0, 2*hedgeAfter+100*time.Millisecond)
		if p.lanesOn(planeFast) != 2 || p.fallbacks() != "" {
			t.Errorf("%d lanes, fallbacks: %s", p.lanesOn(planeFast), p.fallbacks())
		}
	})
}

// Who has been told is told again when it was up meanwhile: a link on two planes of which each fails in turn is never
// lost.
func TestPlanesFailInTurn(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{Lanes: 4}, nil)
		nets := map[string]*memory.Network{planeFast: p.fast, planeSafe: p.safe}
		for i := range 20 {
			bad := []string{planeFast, planeSafe}[i%2]
			p.deny(bad, []func(string){nets[bad].Silence, refused(nets[bad])}[i/2%2])
			for lane := range 4 {
				p.put(lane, uint64(i))
				p.w.put(p.link.Number(), lane, record(i))
			}
			nets[bad].Cut(nil)
			time.Sleep(4 * time.Second)
			p.deny(bad, nets[bad].Allow)
			time.Sleep(time.Duration(i) * 10 * time.Second)
		}
		for lane := range 4 {
			p.equal(p.w, lane)
		}
		if p.count("lane lost")+p.count("lost") != 0 {
			t.Errorf("events: %s", p.testLink)
		}
	})
}

// Another node at the addresses of a better plane is a reason to stay where the link is, not to give it up.
func TestBetterPlaneAnswersAsAnotherNode(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{Lanes: 2}, func(p *twoPlanes) {
			p.w.script = func(c *workerConn) bool {
				if c.conn.Info().Plane == planeSafe {
					return true
				}
				own := c.w.answer(c.hello)
				own.Node[0]++
				_, _ = c.conn.Write(wire.AppendHello(nil, own))
				time.Sleep(time.Millisecond) // a Close drops what was not read
				return false
			}
		})
		if got := p.fallbacks(); got != "fast>safe identity 1;" {
			t.Errorf("fallbacks: %s", got)
		}
		time.Sleep(5 * time.Minute)
		if p.lanesOn(planeSafe) != 2 || p.count("lost") != 0 || len(p.w.all()) < 7 {
			t.Errorf("%d lanes, %d HELLOs; events: %s", p.lanesOn(planeSafe), len(p.w.all()), p.testLink)
		}
		p.carry(0)
		p.carry(1)
	})
}
