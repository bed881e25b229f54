package mux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// Two planes of memory networks; a frontend that has both prefers fast.
const (
	planeFast = "fast"
	planeSafe = "safe"
)

// twoPlanes is a frontend and a worker that share two planes.
type twoPlanes struct {
	*pair
	fast, safe *memory.Network
	at         map[string][]string // the worker's endpoints
	front      []transport.Transport
}

// newTwoPlanes starts both sides; before, if not nil, is called before the frontend knows the worker.
func newTwoPlanes(t *testing.T, cfg Config, before func(*twoPlanes)) *twoPlanes {
	t.Helper()
	p := &twoPlanes{pair: &pair{id: workerID}, at: make(map[string][]string), fast: memory.NewNetwork(memory.Config{Plane: planeFast}), safe: memory.NewNetwork(memory.Config{Plane: planeSafe})}
	var err error
	if p.send, err = NewSender(Config{ID: workerID}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*memory.Network{p.fast, p.safe} {
		work := n.Transport(workerID)
		ln, err := work.Listen(t.Context(), "worker:0", 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range ln.Endpoints() {
			p.at[work.Plane()] = append(p.at[work.Plane()], a.String())
		}
		if err := p.send.Serve(ln); err != nil {
			t.Fatal(err)
		}
		p.front = append(p.front, n.Transport(frontID))
		t.Cleanup(func() { _ = work.Close() })
	}
	cfg.ID = frontID
	if p.recv, err = NewReceiver(cfg, p.front...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.close(t)
		for _, tr := range p.front {
			_ = tr.Close()
		}
	})
	if before != nil {
		before(p)
	}
	if err := p.recv.AddPeer(p.peer(planeFast, planeSafe)); err != nil {
		t.Fatal(err)
	}
	if err := p.recv.Await(t.Context(), p.id); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *twoPlanes) peer(planes ...string) Peer {
	d := Peer{ID: p.id}
	for _, name := range planes {
		d.Planes = append(d.Planes, PeerPlane{Plane: name, Endpoints: p.at[name]})
	}
	return d
}

// deny applies a fault to every endpoint of a plane.
func (p *twoPlanes) deny(plane string, fault func(address string)) {
	for _, a := range p.at[plane] {
		fault(a)
	}
}

// lanesOn counts the lanes that are up on a plane.
func (p *twoPlanes) lanesOn(plane string) (n int) {
	for _, l := range p.recv.Stats().Lanes {
		if l.Plane == plane {
			n++
		}
	}
	return n
}

// waitForFast waits for the next try of the better plane, which may be over a minute away.
func (p *twoPlanes) waitForFast(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(preferAgain / 2); p.state().Plane != planeFast && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	waitFor(t, "the better plane", func() bool { return p.state().Plane == planeFast })
}

func (p *twoPlanes) fallbacks() string {
	s := ""
	for _, f := range p.recv.Stats().Fallbacks {
		s += fmt.Sprintf("%s>%s %s %d;", f.From, f.To, f.Reason, f.Links)
	}
	return s
}

// carry sends record i on a stream and takes it at the other end.
func carry(t *testing.T, in *InStream, out *OutStream, i int) {
	t.Helper()
	if err := out.Send(t.Context(), makeRecord(nil, 1, i, 64)); err != nil {
		t.Fatalf("record %d: %v", i, err)
	}
	rec, err := in.Next(t.Context())
	if err == nil {
		err = checkRecord(rec, 1, i)
	}
	if err != nil {
		t.Fatalf("record %d: %v", i, err)
	}
}

// finish ends a stream on both sides.
func finish(t *testing.T, in *InStream, out *OutStream) {
	t.Helper()
	if err := out.Complete(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Next(t.Context()); err != io.EOF {
		t.Fatalf("expected io.EOF, got %v", err)
	}
	_ = in.Close()
}

// A link that fell back is back on the better plane within a minute and a bit of that plane's return. The stream that was
// open meanwhile ends where it began, untouched, and then its lane goes.
func TestPreferredPlaneIsTriedAgain(t *testing.T) {
	for _, resume := range []time.Duration{0, -1} { // with failover off, too: nothing is moved
		inFakeTime(t, fmt.Sprintf("resume=%v", resume), func(t *testing.T) {
			begun := time.Now()
			p := newTwoPlanes(t, Config{Lanes: 2, PlaneLanes: map[string]int{planeFast: 3}, ResumeTimeout: resume}, func(p *twoPlanes) {
				p.deny(planeFast, p.fast.Silence)
			})
			took(t, "fell back", begun, fallbackAfter, fallbackAfter+100*time.Millisecond)
			waitFor(t, "two lanes", func() bool { return p.lanesOn(planeSafe) == 2 })
			if got := p.fallbacks(); got != "fast>safe timeout 1;" {
				t.Errorf("fallbacks: %s", got)
			}
			if st := p.state(); st.Plane != planeSafe || !errors.Is(st.Fallback, context.DeadlineExceeded) {
				t.Errorf("state %+v", st)
			}
			in, out := p.open(t)
			carry(t, in, out, 0)

			time.Sleep(3 * preferAgain) // it is tried and fails, and nothing changes
			carry(t, in, out, 1)
			if p.lanesOn(planeFast) != 0 || p.lanesOn(planeSafe) != 2 || p.fallbacks() != "fast>safe timeout 1;" {
				t.Errorf("%d and %d lanes, fallbacks %s", p.lanesOn(planeFast), p.lanesOn(planeSafe), p.fallbacks())
			}

			p.deny(planeFast, p.fast.Allow)
			begun = time.Now()
			p.waitForFast(t)
			took(t, "tried again", begun, 0, preferAgain+preferAgain/12+fallbackAfter)
			if st := p.state(); st.Fallback != nil {
				t.Errorf("still said to have fallen back: %v", st.Fallback)
			}
			waitFor(t, "three lanes there, and of the old ones the one that carries the stream", func() bool {
				return p.lanesOn(planeFast) == 3 && p.lanesOn(planeSafe) == 1
			})
			carry(t, in, out, 2)
			in2, out2 := p.open(t)
			if plane, _ := in2.Lane(); plane != planeFast {
				t.Errorf("a new stream is on plane %s", plane)
			}
			carry(t, in2, out2, 0)
			time.Sleep(5 * time.Minute) // an old stream holds its lane as long as it likes
			carry(t, in, out, 3)
			if plane, _ := in.Lane(); plane != planeSafe {
				t.Errorf("the old stream is on plane %s", plane)
			}
			finish(t, in, out)
			finish(t, in2, out2)
			waitFor(t, "the old lane is gone", func() bool { return p.lanesOn(planeSafe) == 0 })
			p.settled(t)
			st := p.recv.Stats()
			if st.StreamsMoved != 0 || st.LaneDeaths[deathReplaced] != 2 || st.StreamsEnded["complete"] != 2 || st.Links != 1 {
				t.Errorf("%d moved, deaths %v, ends %v, %d links", st.StreamsMoved, st.LaneDeaths, st.StreamsEnded, st.Links)
			}
			if p.lanesOn(planeFast) != 3 {
				t.Errorf("%d lanes", p.lanesOn(planeFast))
			}
		})
	}
}

// When a plane stops under open streams, the link goes on over the other one and no stream fails.
func TestLinkGoesOnOverAnotherPlane(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  func(*twoPlanes)
		reason string
		within time.Duration
	}{
		{"blocked", func(p *twoPlanes) { p.deny(planeFast, p.fast.Silence); p.fast.Stall() }, "timeout", 4500 * time.Millisecond},
		{"refused", func(p *twoPlanes) {
			p.deny(planeFast, func(a string) { p.fast.Refuse(a, syscall.ECONNREFUSED) })
			p.fast.Cut(nil)
		}, "refused", time.Second},
		{"no more in the record", func(p *twoPlanes) {
			if err := p.recv.AddPeer(p.peer(planeSafe)); err != nil {
				panic(err)
			}
			p.fast.Cut(nil)
		}, "other", time.Second},
	} {
		inFakeTime(t, c.name, func(t *testing.T) {
			p := newTwoPlanes(t, Config{Lanes: 2}, nil)
			waitFor(t, "two lanes", func() bool { return p.lanesOn(planeFast) == 2 })
			in, out := p.open(t)
			in2, out2 := p.open(t)
			carry(t, in, out, 0)
			begun := time.Now()
			c.fault(p)
			if err := out.Send(t.Context(), makeRecord(nil, 1, 1, 64)); err != nil {
				t.Fatal(err)
			}
			if rec, err := in.Next(t.Context()); err != nil || checkRecord(rec, 1, 1) != nil {
				t.Fatalf("%q, %v", rec, err)
			}
			took(t, "goes on", begun, 0, c.within)
			carry(t, in2, out2, 0)
			finish(t, in, out)
			finish(t, in2, out2)
			waitFor(t, "two lanes", func() bool { return p.lanesOn(planeSafe) == 2 && p.lanesOn(planeFast) == 0 })
			want := "fast>safe " + c.reason + " 1;"
			if c.reason == "other" { // fast is not a plane of both any more, so nothing fell back
				want = ""
			}
			if got := p.fallbacks(); got != want {
				t.Errorf("fallbacks: %q, expected %q", got, want)
			}
			p.settled(t)
		})
	}
}

// A plane of which only the port of the link's one lane is blocked stays the link's: the other port is asked within the shorter
// time that a link has whose lanes were silent.
func TestOneSilentPortIsNoReasonToFallBack(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{Lanes: 1}, nil)
		in, out := p.open(t)
		carry(t, in, out, 0)
		begun := time.Now()
		p.fast.Silence(p.recv.Stats().Lanes[0].Remote)
		for _, c := range p.fast.Conns() {
			c.Stall()
		}
		if err := out.Send(t.Context(), makeRecord(nil, 1, 1, 64)); err != nil {
			t.Fatal(err)
		}
		if rec, err := in.Next(t.Context()); err != nil || checkRecord(rec, 1, 1) != nil {
			t.Fatalf("%q, %v", rec, err)
		}
		took(t, "goes on", begun, 0, 4*time.Second)
		if p.lanesOn(planeFast) != 1 || p.lanesOn(planeSafe) != 0 || p.fallbacks() != "" {
			t.Errorf("%d and %d lanes, fallbacks %q", p.lanesOn(planeFast), p.lanesOn(planeSafe), p.fallbacks())
		}
		finish(t, in, out)
		p.settled(t)
	})
}

// Whoever waits for a link that is without a lane is told when it has one, and when it is lost.
func TestAwaitReturn(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newTwoPlanes(t, Config{Lanes: 2}, nil)
		waitFor(t, "two lanes", func() bool { return p.lanesOn(planeFast) == 2 })
		in, out := p.open(t) // so that the lanes are watched each second
		carry(t, in, out, 0)
		if err := p.recv.AwaitReturn(t.Context(), p.id); err != nil || !p.recv.UpSoon(p.id) {
			t.Errorf("a link that is up: %v", err)
		}
		down := func(planes ...string) (begun time.Time) {
			for _, plane := range planes {
				p.deny(plane, map[string]*memory.Network{planeFast: p.fast, planeSafe: p.safe}[plane].Silence)
			}
			p.fast.Stall()
			p.safe.Stall()
			waitFor(t, "no lane", func() bool { return !p.recv.Up(p.id) })
			if !p.recv.UpSoon(p.id) {
				t.Error("a link that is down is said to be lost")
			}
			return time.Now()
		}
		begun := down(planeFast)
		p.safe.Release()
		if err := p.recv.AwaitReturn(t.Context(), p.id); err != nil || !p.recv.Up(p.id) {
			t.Errorf("the link came back, but: %v", err)
		}
		took(t, "came back", begun, fallbackMute, fallbackMute+100*time.Millisecond)
		carry(t, in, out, 1)

		begun = down(planeFast, planeSafe)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.recv.AwaitReturn(short, p.id); !errors.Is(err, ErrNoLink) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who waits for a second is told: %v", err)
		}
		if err := p.recv.AwaitReturn(t.Context(), p.id); !errors.Is(err, ErrNoLink) || p.recv.UpSoon(p.id) {
			t.Errorf("the link is lost, but: %v", err)
		}
		took(t, "lost", begun, DefaultResume-tickEvery, DefaultResume+2*tickEvery)
		if _, err := in.Next(t.Context()); err == nil {
			t.Error("its stream goes on")
		}
		_ = in.Close()
		if err := p.recv.AwaitReturn(t.Context(), transport.NodeID{9}); !errors.Is(err, ErrNoLink) {
			t.Errorf("a node that nobody knows: %v", err)
		}
	})
}

// A node whose link is only being made is waited for: one that is new, and one that has forgotten its link. One that a
// dial found silent, or that refuses, is not.
func TestAwaitNewLink(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		n := memory.NewNetwork(memory.Config{})
		front, work := n.Transport(frontID), n.Transport(workerID)
		recv, err := NewReceiver(Config{ID: frontID}, front)
		if err != nil {
			t.Fatal(err)
		}
		defer closeInTime(t, "Receiver", recv)
		address := ""
		begin := func(bind string) *Sender {
			ln, err := work.Listen(t.Context(), bind, 1)
			if err != nil {
				t.Fatal(err)
			}
			address = ln.Endpoints()[0].String()
			send, err := NewSender(Config{ID: workerID})
			if err != nil {
				t.Fatal(err)
			}
			if err := send.Serve(ln); err != nil {
				t.Fatal(err)
			}
			return send
		}
		comes := func(what string) {
			t.Helper()
			if recv.Up(workerID) || !recv.UpSoon(workerID) {
				t.Errorf("%s: up %t, soon %t", what, recv.Up(workerID), recv.UpSoon(workerID))
			}
			if err := recv.AwaitReturn(t.Context(), workerID); err != nil || !recv.Up(workerID) {
				t.Errorf("%s: %v", what, err)
			}
		}
		stays := func(what string, begun time.Time, low, high time.Duration) {
			t.Helper()
			if err := recv.AwaitReturn(t.Context(), workerID); !errors.Is(err, ErrNoLink) || recv.UpSoon(workerID) {
				t.Errorf("%s: %v, soon %t", what, err, recv.UpSoon(workerID))
			}
			took(t, what, begun, low, high)
		}
		add := func() {
			t.Helper()
			at := []PeerPlane{{Plane: front.Plane(), Endpoints: []string{address}}}
			if err := recv.AddPeer(Peer{ID: workerID, Planes: at}); err != nil {
				t.Fatal(err)
			}
		}
		send := begin("worker:0")
		n.SetLatency(200 * time.Millisecond)
		add()
		comes("a node that is new")

		n.Silence(address) // its next life knows no link, and the frontend hears nothing of the end of this one
		for _, c := range n.Conns() {
			c.Peer().Stall()
		}
		closeInTime(t, "Sender", send)
		send = begin(address)
		n.Allow(address)
		n.Cut(errors.New("the test cuts it"))
		waitFor(t, "a frontend that has noticed", func() bool { return !recv.Up(workerID) })
		comes("a node that has forgotten its link")

		closeInTime(t, "Sender", send) // which says so
		waitFor(t, "the loss", func() bool { return recv.Stats().Links == 0 })
		stays("a node that has gone", time.Now(), 0, 0)
		recv.RemovePeer(workerID)
		begun := time.Now()
		n.Silence(address)
		add()
		stays("a node that is silent", begun, dialTimeout, dialTimeout)
		recv.RemovePeer(workerID)
		n.Refuse(address, nil)
		add()
		stays("a node that refuses", time.Now(), 0, time.Millisecond)
	})
}

// However many lanes a link has, those without a stream are found dead as soon as those with one: streams are not moved from
// one dead lane to the next.
func TestDeadLanesAreFoundTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTwoPlanes(t, Config{Lanes: 16}, nil)
		waitFor(t, "all lanes", func() bool { return p.lanesOn(planeFast) == 16 })
		in, out := p.open(t)
		time.Sleep(30 * time.Second)
		p.deny(planeFast, p.fast.Silence)
		p.fast.Stall()
		begun := time.Now()
		carry(t, in, out, 0)
		took(t, "goes on", begun, 0, 7*time.Second)
		finish(t, in, out)
		p.settled(t)
	})
}

// A node that refuses on every plane is gone at once; one that refuses on one plane and is silent on the other may come back.
func TestRefusedOnEveryPlane(t *testing.T) {
	inFakeTime(t, "every", func(t *testing.T) {
		p := newTwoPlanes(t, Config{}, nil)
		in, _ := p.open(t)
		begun := time.Now()
		p.deny(planeFast, func(a string) { p.fast.Refuse(a, syscall.ECONNREFUSED) })
		p.deny(planeSafe, func(a string) { p.safe.Refuse(a, syscall.ECONNREFUSED) })
		p.fast.Cut(nil)
		_, err := in.Next(t.Context())
		if end, wrong := endType(err); end != EndLost {
			t.Errorf("%v (%v)", err, wrong)
		}
		took(t, "lost", begun, 0, 100*time.Millisecond)
	})
	inFakeTime(t, "one", func(t *testing.T) {
		p := newTwoPlanes(t, Config{}, nil)
		in, out := p.open(t)
		p.deny(planeFast, func(a string) { p.fast.Refuse(a, syscall.ECONNREFUSED) })
		p.deny(planeSafe, p.safe.Silence)
		p.fast.Cut(nil)
		time.Sleep(6 * time.Second)
		p.deny(planeSafe, p.safe.Allow)
		carry(t, in, out, 0)
		finish(t, in, out)
		p.settled(t)
	})
}

// The better plane may go again while lanes of the other one are still being let go: they carry on.
func TestBetterPlaneGoesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTwoPlanes(t, Config{}, func(p *twoPlanes) { p.deny(planeFast, p.fast.Silence) })
		in, out := p.open(t)
		p.deny(planeFast, p.fast.Allow)
		p.waitForFast(t)
		p.deny(planeFast, func(a string) { p.fast.Refuse(a, syscall.ECONNREFUSED) })
		in2, out2 := p.open(t)
		carry(t, in2, out2, 0)
		p.fast.Cut(nil)
		carry(t, in2, out2, 1)
		carry(t, in, out, 0)
		waitFor(t, "a link on the other plane", func() bool { return p.state().Plane == planeSafe })
		finish(t, in, out)
		finish(t, in2, out2)
		waitFor(t, "one lane", func() bool { return p.lanesOn(planeSafe) == 1 && p.lanesOn(planeFast) == 0 })
		p.settled(t)
	})
}

// One endpoint that says nothing costs a lane a second, not its dial.
func TestSilentEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		p := newTwoPlanes(t, Config{Lanes: 2}, func(p *twoPlanes) { p.fast.Silence(p.at[planeFast][0]) })
		waitFor(t, "both lanes", func() bool { return p.lanesOn(planeFast) == 2 })
		took(t, "up", begun, 0, 2*hedgeAfter+100*time.Millisecond)
		if got := p.fallbacks(); got != "" {
			t.Errorf("fallbacks: %s", got)
		}
	})
}
