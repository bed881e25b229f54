package mux

import (
	"context"
	"errors"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// stranger is a frontend of its own in front of the WorkerNode of another one. It says that it is id, if that is not
// zero.
func stranger(t *testing.T, plane string, f *rawFront, id transport.NodeID) *rawFront {
	t.Helper()
	front, own := newNode(t, plane)
	t.Cleanup(func() { _ = front.Close() })
	if id.IsZero() {
		id = own
	}
	return &rawFront{send: f.send, front: front, id: id, link: 99, addr: f.addr, secret: [16]byte{0xbb}, lanes: 1}
}

// claim has the WorkerNode claim open terms of a frontend and waits for the CLAIM on a lane.
func claim(t *testing.T, f *rawFront, on *rawLane, id [16]byte) (answer chan error) {
	t.Helper()
	terms := wire.AppendOpenTerms(nil, &wire.OpenTerms{Frontend: f.id, ID: id})
	answer = make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), guard)
		defer cancel()
		out, err := f.send.Claim(ctx, terms)
		if err == nil {
			err = out.Complete(nil)
		}
		answer <- err
	}()
	if _, ok := on.await(t, "CLAIM", func(r rawRecord) bool {
		got, err := wire.ParseClaim(r.body)
		return r.Kind == wire.Claim && err == nil && got == id
	}); !ok {
		t.Fatal("the lane died")
	}
	return answer
}

// A GRANT counts on the link that was asked and nowhere else, and only with terms of that link: nobody answers for
// another frontend, and none gets another's stream.
func TestGrantOfAnother(t *testing.T) {
	onSockets(t, func(t *testing.T, plane string) {
		f := newRawFrontOver(t, plane, Config{GapMax: -1})
		lane := f.lane(t)
		beside, other := f.another(), stranger(t, plane, f, transport.NodeID{})
		besideLane, otherLane := beside.lane(t), other.lane(t)
		asked, askedLane := f, lane
		if plane != transport.PlaneTCP { // where nodes are proven the newest link is asked
			asked, askedLane, beside, besideLane = beside, besideLane, f, lane
		}
		grant := func(of *rawFront, l *rawLane, index uint32, id [16]byte) []byte {
			terms := of.terms(l, index)
			return wire.AppendGrant(nil, id, wire.Granted, of.mint(&terms))
		}
		id := [16]byte{1}
		answer := claim(t, asked, askedLane, id)
		otherLane.send(t, grant(other, otherLane, 1, id), wire.AppendGrant(nil, id, wire.GrantUnknown, nil))
		besideLane.send(t, grant(beside, besideLane, 1, id), wire.AppendGrant(nil, id, wire.GrantUnknown, nil))
		if !otherLane.alive(t) || !besideLane.alive(t) {
			t.Fatal("a lane died")
		}
		if n := f.send.Stats().RecordsDropped[dropStale]; n != 4 {
			t.Errorf("%d of 4 GRANTs from elsewhere were dropped", n)
		}
		select {
		case err := <-answer:
			t.Fatalf("somebody else's GRANT was taken: %v", err)
		default:
		}
		askedLane.send(t, grant(asked, askedLane, 1, id))
		if err := <-answer; err != nil {
			t.Errorf("the GRANT of the link that was asked: %v", err)
		}

		for n, terms := range map[byte][]byte{
			2: grant(beside, besideLane, 2, [16]byte{2}),
			3: grant(other, otherLane, 2, [16]byte{3}),
		} {
			answer := claim(t, asked, askedLane, [16]byte{n})
			askedLane.send(t, terms)
			if err := <-answer; !errors.Is(err, ErrStaleTerms) {
				t.Errorf("terms of another link in a GRANT: %v", err)
			}
		}
	})
}

// A HELLO with a victim's NodeID and a higher link number: where the plane proves nodes it is refused, elsewhere it
// makes a link of its own, which takes nothing from the victim's: not its streams, not its return, not its claims.
func TestHelloOfAVictim(t *testing.T) {
	onSockets(t, func(t *testing.T, plane string) {
		f := newRawFrontOver(t, plane, Config{GapMax: -1})
		lane := f.lane(t)
		out := f.attach(t, f.terms(lane, 1))
		link := uint64(99)
		attack := func() {
			t.Helper()
			a := stranger(t, plane, f, f.id)
			link++
			a.link = link
			l := a.dial(t)
			err := a.greet(t, l, a.hello())
			if proves := plane != transport.PlaneTCP; (err != nil) != proves {
				t.Fatalf("a HELLO of somebody else on a plane that proves nodes (%t): %v", proves, err)
			}
			named := f.hello() // the victim's link, without its secrets
			named.OwnSecret, named.PeerSecret, named.Serial = [16]byte{0xbb}, [16]byte{0xcc}, 1000
			if err := a.greet(t, a.dial(t), named); err == nil {
				t.Fatal("the link was taken without its secrets")
			}
		}
		attack()
		if err := out.TrySend([]byte("one")); err != nil {
			t.Fatal(err)
		}
		if _, ok := lane.await(t, "a record", ofKind(wire.Data)); !ok {
			t.Fatal("the victim's lane died")
		}
		_ = lane.conn.Close()
		attack()
		if err := out.TrySend([]byte("two")); err != nil {
			t.Fatalf("the victim's stream while it is away: %v", err)
		}
		lane = f.laneOf(t, 0, wire.HeaderSize+wire.OpenSize+wire.HeaderSize+3)
		if r, ok := lane.await(t, "the next record", ofKind(wire.Data)); !ok || string(r.body) != "two" {
			t.Fatalf("%q, %t", r.body, ok)
		}
		attack()
		answer := claim(t, f, lane, [16]byte{1})
		lane.send(t, wire.AppendGrant(nil, [16]byte{1}, wire.GrantBusy, nil))
		if err := <-answer; !errors.Is(err, ErrBusy) {
			t.Errorf("claimed elsewhere: %v", err)
		}
	})
}

// Terms that somebody has forged, with whatever number, are refused before they change anything: the next ones of the
// index hold, a KILL is answered by END, and the index goes on after it.
func TestForgedTerms(t *testing.T) {
	onSockets(t, func(t *testing.T, plane string) {
		f := newRawFrontOver(t, plane, Config{GapMax: -1})
		l := f.lane(t)
		forge := func(index uint32) {
			t.Helper()
			real := f.mint(&wire.Terms{Frontend: f.id, Worker: f.send.cfg.ID, Link: l.peer.Link,
				Slot: wire.MakeSlot(9, 1), Number: 1, Window: 64 << 10}) // of another index, with a key that holds
			for _, number := range []uint64{1, f.number + 1, 1 << 40, wire.MaxNumber, wire.MaxNumber + 1, 1<<64 - 1} {
				terms := wire.Terms{Frontend: f.id, Worker: f.send.cfg.ID, Link: l.peer.Link,
					Slot: wire.MakeSlot(index, 200), Number: number, Window: 64 << 10}
				forged := wire.AppendTerms(nil, &terms, wire.NewKey([16]byte{0xbb}, [16]byte{0xcc}))
				copy(forged[wire.TermsSize-8:], real[wire.TermsSize-8:])
				if _, err := f.send.Attach(forged); err == nil {
					t.Fatalf("number %d: forged terms are taken", number)
				}
			}
		}
		for round := range 3 {
			forge(1)
			killed := f.terms(l, 1) // its request never comes
			l.send(t, wire.AppendKill(nil, killed.Slot, killed.Number, EndKilled))
			if _, ok := l.await(t, "END for KILL", endOf(killed.Number)); !ok {
				t.Fatal("the lane died")
			}
			forge(1)
			terms := f.terms(l, 1)
			out := f.attach(t, terms)
			forge(1)
			if out.Err() != nil {
				t.Fatalf("round %d: forged terms ended a stream: %v", round, out.Err())
			}
			l.send(t, wire.AppendKill(nil, terms.Slot, terms.Number, EndKilled))
			if _, ok := l.await(t, "END for KILL", endOf(terms.Number)); !ok {
				t.Fatal("the lane died")
			}
		}
		if st := f.send.Stats(); st.OpenStreams != 0 || st.StreamsOpened != 3 {
			t.Errorf("%d streams were opened, %d are", st.StreamsOpened, st.OpenStreams)
		}
	})
}

// An end of a type that there is not is refused by the worker's stream, which goes on; given to Kill it counts as
// killed. So does complete: what was cut short never looks complete.
func TestEndsOfNoType(t *testing.T) {
	p := newPair(t, pairConfig{})
	in, out := p.open(t)
	for _, end := range []EndType{0, EndProtocol + 1, 16, 200, 255} {
		if out.PutEnd(End{Type: end}) == nil || out.Fail(End{Type: end}) == nil {
			t.Errorf("type %d is taken", end)
		}
	}
	if err := out.Send(t.Context(), []byte("still here")); err != nil {
		t.Fatal(err)
	}
	if rec, err := in.Next(t.Context()); err != nil || string(rec) != "still here" {
		t.Fatalf("%q, %v", rec, err)
	}
	if err := out.Complete(nil); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	for _, end := range []EndType{0, EndComplete, EndProtocol + 1, 200} {
		in, out := p.open(t)
		in.Kill(End{Type: end})
		var e *EndError
		if _, err := in.Next(t.Context()); !errors.As(err, &e) || e.End.Type != EndKilled {
			t.Errorf("killed with type %d: %v", end, err)
		}
		<-out.Done()
		if got, err := endType(out.Err()); got != EndKilled {
			t.Errorf("the worker's stream ended as %s (%v)", got, err)
		}
	}
	p.settled(t)
}
