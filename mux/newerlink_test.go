package mux

import (
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// begin brings the first lane of another link up, of another node if node is not zero.
func (f *rawFront) begin(t *testing.T, link uint64, node transport.NodeID) *rawLane {
	t.Helper()
	h := f.hello()
	h.Link, h.PeerSecret = link, [16]byte{}
	if !node.IsZero() {
		h.Node = node
	}
	l := f.dial(t)
	if err := f.greet(t, l, h); err != nil {
		t.Fatal(err)
	}
	l.pump()
	t.Cleanup(func() { _ = l.conn.Close(); <-l.done })
	return l
}

// A frontend that begins a new link has lost the one before, so a worker does not hold the older one's streams for 15 s.
func TestNewerLinkEndsOlderOnes(t *testing.T) {
	ended := func(t *testing.T, out *OutStream, begun time.Time, low, high time.Duration) {
		t.Helper()
		<-out.Done()
		if end, wrong := endType(out.Err()); end != EndLost {
			t.Errorf("%v (%v)", out.Err(), wrong)
		}
		took(t, "ended", begun, low, high)
	}
	inFakeTime(t, "without a lane", func(t *testing.T) {
		f := newRawFront(t, Config{MaxLinks: 1}, memory.Config{}) // the room of the older one is free at once, too
		l := f.lane(t)
		out := f.attach(t, f.terms(l, 1))
		_ = l.conn.Close()
		waitFor(t, "no lane", func() bool { return len(f.send.Stats().Lanes) == 0 })
		time.Sleep(2 * time.Second)
		select {
		case <-out.Done():
			t.Fatal("ended before there was a newer link")
		default:
		}
		begun := time.Now()
		f.begin(t, 2, transport.NodeID{})
		ended(t, out, begun, 0, 10*time.Millisecond)
		if n := f.send.Stats().Links; n != 1 {
			t.Errorf("%d links", n)
		}
		late := f.dial(t)
		h := f.hello() // of link 1, with its secrets
		late.send(t, wire.AppendHello(nil, &h))
		late.pump()
		r, ok := late.await(t, "GOAWAY", ofKind(wire.GoAway))
		if code, _, err := wire.ParseGoAway(r.body); !ok || err != nil || code != wire.AwayUnknownLink {
			t.Errorf("a lane of the older link is answered by %v, %v", code, err)
		}
	})
	inFakeTime(t, "with a lane that dies later", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		l := f.lane(t)
		l.talk(wire.Pong)
		out := f.attach(t, f.terms(l, 1))
		newer := f.begin(t, 2, transport.NodeID{})
		newer.talk(wire.Pong)
		time.Sleep(20 * time.Second)
		select {
		case <-out.Done():
			t.Fatalf("a stream whose lane is up has ended: %v", out.Err())
		default:
		}
		begun := time.Now()
		_ = l.conn.Close()
		ended(t, out, begun, 0, 10*time.Millisecond)
	})
	inFakeTime(t, "of an older link, or of another node", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		l := f.begin(t, 5, transport.NodeID{})
		terms := f.terms(l, 1)
		terms.Link = 5
		out := f.attach(t, terms)
		begun := time.Now()
		_ = l.conn.Close()
		waitFor(t, "no lane", func() bool { return len(f.send.Stats().Lanes) == 0 })
		f.begin(t, 4, transport.NodeID{}).talk(wire.Pong)
		f.begin(t, 6, transport.NodeID{0xe}).talk(wire.Pong)
		ended(t, out, begun, 15*time.Second, 16*time.Second+2*tickEvery)
	})
}
