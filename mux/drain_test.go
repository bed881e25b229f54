package mux

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// The streams of a frontend that is dead hold a Drain for the rest of their lanes' hold, counted from when the lane
// died, and no longer: until then the frontend may come back for them.
func TestDrainWaitsForADeadFrontend(t *testing.T) {
	const hold = DefaultResume + DefaultIdle + 5*time.Second
	const ticks = time.Second + 2*tickEvery // holds are looked at once a second
	for _, c := range []struct {
		name   string
		dies   func(l *rawLane)
		ended  bool // the worker has ended the stream
		detect time.Duration
	}{
		{"its connections were reset", func(l *rawLane) { _ = l.conn.Close() }, false, 0},
		{"its connections were reset, all is written", func(l *rawLane) { _ = l.conn.Close() }, true, 0},
		{"it says nothing", func(*rawLane) {}, false, 3 * time.Second},
		{"it says nothing, all is written", func(*rawLane) {}, true, DefaultIdle}, // as a lane without open streams may
	} {
		inFakeTime(t, c.name, func(t *testing.T) {
			f := newRawFront(t, Config{}, memory.Config{})
			l := f.lane(t)
			s := f.attach(t, f.terms(l, 1))
			begun := time.Now()
			if err := s.Send(t.Context(), []byte("token")); err != nil {
				t.Fatal(err)
			}
			if c.ended {
				if err := s.Complete(nil); err != nil {
					t.Fatal(err)
				}
			}
			c.dies(l)
			time.Sleep(4 * time.Second) // of fake time: in most cases the lane is known to be dead before the Drain
			if err := f.send.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			took(t, "drained", begun, c.detect+hold, c.detect+hold+ticks)
			if !c.ended {
				<-s.Done()
			}
		})
	}
	inFakeTime(t, "it comes back", func(t *testing.T) {
		p := newPair(t, pairConfig{})
		in, out := p.open(t)
		drained := make(chan error, 1)
		for _, c := range p.net.Conns() {
			p.net.Silence(c.Info().Remote.String())
			defer p.net.Allow(c.Info().Remote.String())
		}
		p.net.Cut(nil)
		go func() { drained <- p.send.Drain(t.Context()) }()
		time.Sleep(3 * time.Second)
		for _, e := range p.endpoints {
			p.net.Allow(e)
		}
		carry(t, in, out, 0)
		finish(t, in, out)
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
	inFakeTime(t, "one lane stays away, the other one is up", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		f.lanes = 2
		f.lane(t).talk(wire.Ping)
		l := f.laneOf(t, 1, 0)
		s := f.attach(t, f.terms(l, 1))
		if err := s.Send(t.Context(), []byte("token")); err != nil {
			t.Fatal(err)
		}
		_ = l.conn.Close()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*hold)
		defer cancel()
		if err := f.send.Drain(ctx); err != nil {
			t.Error(err)
		}
		took(t, "drained", begun, hold, hold+ticks)
	})
	inFakeTime(t, "ctx is the bound", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		l := f.lane(t)
		f.attach(t, f.terms(l, 1))
		_ = l.conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if err := f.send.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %v", err)
		}
		took(t, "given up", begun, time.Second, time.Second+20*time.Millisecond)
	})
}

// Once Drain has returned no stream opens, by a claim that was under way neither.
func TestClaimThatDrainOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		l := f.lane(t)
		id := [16]byte{9}
		claimed := make(chan error, 1)
		go func() {
			_, err := f.send.Claim(t.Context(), wire.AppendOpenTerms(nil, &wire.OpenTerms{Frontend: frontID, ID: id}))
			claimed <- err
		}()
		if _, ok := l.await(t, "CLAIM", ofKind(wire.Claim)); !ok {
			t.Fatal("the lane has ended")
		}
		l.send(t, wire.AppendAck(nil, l.received()))
		if err := f.send.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		terms := f.terms(l, 1)
		l.send(t, wire.AppendGrant(nil, id, wire.Granted, f.mint(&terms)))
		if err := <-claimed; !errors.Is(err, ErrDraining) {
			t.Errorf("the claim's end is %v", err)
		}
		if n := f.send.Stats().OpenStreams; n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})
}
