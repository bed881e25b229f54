package mux

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

func TestOpenTermsAreClaimed(t *testing.T) {
	for _, try := range []bool{false, true} {
		p := newPair(t, pairConfig{recv: Config{Lanes: 2}, mem: memory.Config{TryWrite: try}})
		open, err := p.recv.MintOpen(MintOptions{TimeLeft: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.send.Claim(t.Context(), open.Terms())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := out.Deadline(); !ok {
			t.Error("the time left did not reach the worker")
		}
		in, err := open.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Send(t.Context(), makeRecord(nil, 9, 0, 64)); err != nil {
			t.Fatal(err)
		}
		_ = out.Complete(nil)
		rec, err := in.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := checkRecord(rec, 9, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Next(t.Context()); err != io.EOF {
			t.Fatal(err)
		}
		// The same request again, and one that was given up.
		if _, err := p.send.Claim(t.Context(), open.Terms()); !errors.Is(err, ErrStaleTerms) {
			t.Errorf("a second claim: %v", err)
		}
		_ = open.Close()
		given, err := p.recv.MintOpen(MintOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_ = given.Close()
		if _, err := p.send.Claim(t.Context(), given.Terms()); !errors.Is(err, ErrStaleTerms) {
			t.Errorf("a claim of what was given up: %v", err)
		}
		if _, err := given.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Wait after Close: %v", err)
		}
		p.settled(t)
	}
}

func TestClaimSurvivesALane(t *testing.T) {
	p := newPair(t, pairConfig{recv: Config{Lanes: 2}})
	open, err := p.recv.MintOpen(MintOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.net.Conns() {
		c.Peer().Stall() // what the worker asks does not arrive
	}
	claimed := make(chan error, 1)
	go func() {
		out, err := p.send.Claim(t.Context(), open.Terms())
		if err == nil {
			err = out.Complete(nil)
		}
		claimed <- err
	}()
	waitFor(t, "the claim is under way", func() bool {
		k := p.send.all()[0]
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.claims) == 1
	})
	for _, c := range p.net.Conns() {
		c.Cut(errors.New("cut by the test"))
	}
	if err := <-claimed; err != nil && !errors.Is(err, ErrNoLink) {
		t.Fatal(err)
	} else if err != nil {
		waitFor(t, "a lane", func() bool { return p.state().Up })
		out, err := p.send.Claim(t.Context(), open.Terms())
		if err != nil {
			t.Fatal(err)
		}
		_ = out.Complete(nil)
	}
	in, err := open.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Next(t.Context()); err != io.EOF {
		t.Fatal(err)
	}
	_ = open.Close()
	p.settled(t)
}

func TestClaimEndsWithItsContext(t *testing.T) {
	p := newPair(t, pairConfig{})
	open, err := p.recv.MintOpen(MintOptions{TimeLeft: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	p.net.Conns()[0].Peer().Stall()
	if _, err := p.send.Claim(t.Context(), open.Terms()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim past the time left: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	if _, err := p.send.Claim(t.Context(), open.Terms()[:10]); err == nil {
		t.Error("terms that were cut were claimed")
	}
	p.net.Conns()[0].Peer().Release()
}

// A claim whose answer is due when no lane is up is answered when one is: the frontend has room, and does not close.
func TestClaimIsAnsweredWhenALaneIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, nil)
		l := w.lane(t)
		open, err := w.recv.MintOpen(MintOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		n := w.recv.all()[0].lanes[0]
		_ = l.conn.Close()
		synctest.Wait()
		if err := n.grants.answer(open.id[:]); err != nil {
			t.Fatal(err)
		}
		// As the writer of the next connection does, which may be faster than the news of it.
		n.grants.Emit(n.pipe)
		l = w.lane(t)
		grant, ok := l.await(t, "GRANT", ofKind(wire.Grant))
		if !ok {
			t.Fatal("the lane has ended")
		}
		if _, code, _, err := wire.ParseGrant(grant.body); err != nil || code != wire.Granted {
			t.Errorf("the answer is code %d, %v", code, err)
		}
	})
}
