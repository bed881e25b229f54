package dial

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// The end of the node, and of a peer, is said on each lane, and waits for no application.
func TestGoodbye(t *testing.T) {
	for name, end := range map[string]func(p *pair){
		"close":  func(p *pair) { p.Close("the frontend closes"); p.Close("again") },
		"remove": func(p *pair) { <-p.Remove(workerID); p.Remove(workerID) },
	} {
		inFakeTime(t, name, func(t *testing.T) {
			p := newPair(t, Config{Lanes: 3}, memory.Config{}, nil)
			begun := time.Now()
			end(p)
			took(t, "over", begun, 0, 10*time.Millisecond)
			synctest.Wait()
			for i, c := range p.w.all() {
				if _, away := c.ended(); !slices.Equal(away, []wire.GoAwayCode{wire.AwayClosing}) {
					t.Errorf("lane %d was told %v", i, away)
				}
			}
			if p.count("lost") != 1 || len(p.Links()) != 0 {
				t.Errorf("events: %s", p.testLink)
			}
			if err := p.Add(at(workerID, p.addr...)); name == "close" != errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			if _, err := p.Link(t.Context(), workerID); err == nil {
				t.Error("a link of a node that is gone")
			}
		})
	}
	inFakeTime(t, "a worker that does not read", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 3}, memory.Config{}, nil)
		p.net.Stall()
		begun := time.Now()
		p.Close("the frontend closes")
		took(t, "over", begun, goodbyeTimeout, goodbyeTimeout+10*time.Millisecond)
	})
	inFakeTime(t, "a stuck application", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 2}, memory.Config{}, nil)
		stuck := make(chan struct{})
		p.stuck.Store(&stuck)
		p.w.put(p.link.Number(), 0, record(10))
		synctest.Wait()
		p.net.Cut(nil)
		p.w.set(func() { p.w.links = make(map[uint64]*workerLink) }) // it knows the link no more
		waitFor(t, "the loss", func() bool { return p.count("lost false the peer refused: unknown link") == 1 })
		awaitUp(t, p.front, workerID, guard) // there is a new one
		if all := p.front.all(); len(all) != 2 {
			t.Errorf("%d links", len(all))
		}
		p.stuck.Store(nil)
		close(stuck)
	})
	inFakeTime(t, "a stuck application and resume off", func(t *testing.T) {
		p := newPair(t, Config{Lanes: 2, Resume: -1}, memory.Config{}, nil)
		stuck := make(chan struct{})
		p.stuck.Store(&stuck)
		p.w.put(p.link.Number(), 0, record(10))
		synctest.Wait()
		p.net.Cut(nil)
		waitFor(t, "the other streams of the lane are told", func() bool { return p.count("lane lost 0") == 1 })
		p.stuck.Store(nil)
		close(stuck)
		waitFor(t, "the lane again", func() bool { return p.count("up 0") == 2 })
	})
}

// A worker that drains takes no new streams, on the connections to come as well.
func TestDraining(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, Config{}, memory.Config{}, nil)
		p.w.all()[0].send(wire.AppendGoAway(nil, wire.AwayDraining, "soon"))
		synctest.Wait()
		_, err := p.Link(t.Context(), workerID)
		if st := p.state(workerID); !errors.Is(err, ErrDraining) || !st.Draining || !st.Up || p.Up(workerID) ||
			p.UpSoon(workerID) {
			t.Errorf("%v, %+v", err, st)
		}
		p.net.Cut(nil)
		waitFor(t, "the lane again", func() bool { return p.count("up 0") == 2 })
		if err := p.link.Takes(); !errors.Is(err, ErrDraining) {
			t.Error(err)
		}
	})
}

// A worker that ends each connection after its HELLO, in whatever way, is dialled ever more rarely.
func TestNoProgressIsAFailure(t *testing.T) {
	answer := func(c *workerConn, rest []byte) bool {
		own := c.w.answer(c.hello)
		own.OwnSecret = [16]byte{byte(c.hello.Link)}
		_, _ = c.conn.Write(wire.AppendHello(nil, own))
		time.Sleep(time.Millisecond)
		_, _ = c.conn.Write(rest)
		time.Sleep(time.Millisecond)
		return false
	}
	for name, hostile := range map[string]func(c *workerConn) bool{
		"closes":        func(c *workerConn) bool { return answer(c, nil) },
		"sends garbage": func(c *workerConn) bool { return answer(c, []byte("garbage, and more of it")) },
		"says protocol": func(c *workerConn) bool {
			return answer(c, wire.AppendGoAway(nil, wire.AwayProtocol,
				""))
		},
		"says closing": func(c *workerConn) bool {
			return answer(c, wire.AppendGoAway(nil, wire.AwayClosing,
				""))
		},
		"closes before HELLO":    func(c *workerConn) bool { return false },
		"says garbage, no HELLO": func(c *workerConn) bool { _, _ = c.conn.Write(make([]byte, 100)); return false },
	} {
		for _, lanes := range []int{1, 4} {
			inFakeTime(t, name, func(t *testing.T) {
				p := newPair(t, Config{Lanes: lanes}, memory.Config{}, hostile)
				time.Sleep(time.Minute)
				if n := len(p.w.all()); n < 20 || n > lanes*60 {
					t.Errorf("%d HELLOs in a minute", n)
				}
				fastest(t, p.w, 10*lanes)
			})
		}
	}
	inFakeTime(t, "with progress", func(t *testing.T) { // a bound is left
		p := newPair(t, Config{}, memory.Config{}, func(c *workerConn) bool {
			return answer(c, record(1))
		})
		time.Sleep(time.Minute)
		if n := len(p.w.all()); n < 100 {
			t.Errorf("%d HELLOs in a minute", n)
		}
		fastest(t, p.w, maxPerSecond)
	})
	inFakeTime(t, "a link that works", func(t *testing.T) { // and whose connections live for 60 ms: no waiting at all
		p := newPair(t, Config{}, memory.Config{}, nil)
		for i := range 200 {
			p.w.put(p.link.Number(), 0, record(10))
			time.Sleep(60 * time.Millisecond)
			p.net.Cut(nil)
			synctest.Wait()
			if !p.link.Lanes()[0].Up() {
				t.Fatalf("death %d: the lane is not back at once", i)
			}
		}
	})
}

// fastest checks that no second had more HELLOs.
func fastest(t *testing.T, w *worker, most int) {
	t.Helper()
	all := w.all()
	for i, j := 0, 0; j < len(all); j++ {
		for all[j].at.Sub(all[i].at) >= time.Second {
			i++
		}
		if n := j - i + 1; n > most {
			t.Fatalf("%d HELLOs within a second", n)
		}
	}
}

// A link that began where its node was proven goes on only where it is.
func TestIdentityIsKept(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		proven := memory.NewNetwork(memory.Config{Plane: planeFast, Proves: true})
		open := memory.NewNetwork(memory.Config{Plane: planeSafe})
		w := newWorker(t, workerID)
		fast, safe := w.listen(proven.Transport(workerID), "worker:0", 1), w.listen(open.Transport(workerID),
			"worker:0", 1)
		f := newFront(t, Config{}, proven.Transport(frontID), open.Transport(frontID))
		add(t, f, Peer{ID: workerID, Planes: []PeerPlane{{planeFast, fast}, {planeSafe, safe}}})
		awaitUp(t, f, workerID, guard)
		k := f.last()
		proven.Silence(fast[0])
		proven.Cut(nil)
		time.Sleep(5 * time.Second)
		if k.count("up 0") != 1 || k.count("lost") != 0 {
			t.Fatalf("events: %s", k)
		}
		if n := len(w.all()); n != 1 {
			t.Errorf("%d HELLOs: the link's secrets were said on a plane that proves nobody", n)
		}
		proven.Allow(fast[0])
		waitFor(t, "the lane", func() bool { return k.count("up 0") == 2 })
		proven.Refuse(fast[0], syscall.ECONNREFUSED)
		proven.Cut(nil)
		waitFor(t, "the loss, as nothing of the proven plane is left",
			func() bool { return k.count("lost false every endpoint refused") == 1 })
		awaitUp(t, f, workerID, guard)
		if f.last() == k || f.state(workerID).Plane != planeSafe {
			t.Errorf("%+v", f.state(workerID))
		}
	})
}

// Await, Link and their like answer for nodes that nobody knows.
func TestUnknownNodes(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		f := newFront(t, Config{}, memory.NewNetwork(memory.Config{}).Transport(frontID))
		other := transport.NodeID{9}
		_, err := f.Link(t.Context(), other)
		for _, err := range []error{err, f.Await(t.Context(), other), f.AwaitReturn(t.Context(), other)} {
			if !errors.Is(err, ErrNoLink) {
				t.Error(err)
			}
		}
		f.Suspect(other)
		if _, ok := f.State(other); ok || f.Up(other) || f.UpSoon(other) || f.Add(Peer{}) == nil {
			t.Error("a node that nobody knows")
		}
		var none *NoPlaneError
		if err := f.Add(Peer{ID: other, Planes: []PeerPlane{{"else", []string{"a:1"}}}}); !errors.As(err, &none) ||
			!errors.As(f.state(other).Err, &none) {
			t.Error(err)
		}
		var bad *NoAddressError
		if err := f.Add(at(other, "0.0.0.0:1")); !errors.As(err, &bad) || len(f.States()) != 1 ||
			f.Stats().AddressesRefused[transport.AddressUnspecified] != 1 {
			t.Errorf("%v, %+v", err, f.Stats())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		add(t, f, at(workerID, "gone:1"))
		if err := f.Await(ctx, workerID); !errors.Is(err, ErrNoLink) || !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
		f.Close("")
		if err := f.Await(t.Context(), workerID); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// Late news of a connection that is no more changes nothing.
func TestLateNewsOfAFormerConnection(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, Config{}, memory.Config{}, nil)
		p.w.put(p.link.Number(), 0, record(1))
		p.net.Cut(nil)
		waitFor(t, "the lane again", func() bool { return p.count("up 0") == 2 })
		p.link.Lanes()[0].Down(&pipe.DownError{Reason: pipe.DownPeer, Err: errors.New("late")})
		synctest.Wait()
		if !p.link.Lanes()[0].Up() || len(p.w.all()) != 2 {
			t.Errorf("%d HELLOs; events: %s", len(p.w.all()), p.testLink)
		}
	})
}

// A node whose link is only being made is waited for: one that is new, and one that has forgotten its link. One that a
// dial found silent, or that refuses, is not.
func TestAwaitNewLink(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		n := memory.NewNetwork(memory.Config{Latency: 200 * time.Millisecond})
		w := newWorker(t, workerID)
		address := w.listen(n.Transport(workerID), "worker:0", 1)[0]
		f := newFront(t, Config{}, n.Transport(frontID))
		comes := func(what string) {
			t.Helper()
			if f.Up(workerID) || !f.UpSoon(workerID) {
				t.Errorf("%s: up %t, soon %t", what, f.Up(workerID), f.UpSoon(workerID))
			}
			if err := f.AwaitReturn(t.Context(), workerID); err != nil || !f.Up(workerID) {
				t.Errorf("%s: %v", what, err)
			}
		}
		stays := func(what string, begun time.Time, low, high time.Duration) {
			t.Helper()
			if err := f.AwaitReturn(t.Context(), workerID); !errors.Is(err, ErrNoLink) || f.UpSoon(workerID) {
				t.Errorf("%s: %v, soon %t", what, err, f.UpSoon(workerID))
			}
			took(t, what, begun, low, high)
		}
		add(t, f, at(workerID, address))
		comes("a node that is new")

		w.set(func() { w.links = make(map[uint64]*workerLink) }) // its next life knows no link
		n.Cut(nil)
		waitFor(t, "a frontend that has noticed", func() bool { return !f.Up(workerID) })
		comes("a node that has forgotten its link")

		n.Refuse(address, nil)
		all := w.all()
		all[len(all)-1].send(wire.AppendGoAway(nil, wire.AwayClosing, "it goes"))
		waitFor(t, "the loss", func() bool { return f.Stats().Links == 0 })
		stays("a node that has gone", time.Now(), 0, 0)
		<-f.Remove(workerID)
		begun := time.Now()
		n.Silence(address)
		add(t, f, at(workerID, address))
		stays("a node that is silent", begun, dialTimeout, dialTimeout)
		<-f.Remove(workerID)
		n.Refuse(address, nil)
		add(t, f, at(workerID, address))
		stays("a node that refuses", time.Now(), 0, time.Millisecond)
	})
}
