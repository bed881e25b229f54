package mux

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport/memory"
)

// The streams of a frontend that is dead hold a Drain for the rest of Hold, counted from when their lane died, and no longer:
// until then the frontend may come back for them.
func TestDrainWaitsForADeadFrontend(t *testing.T) {
	const ticks = time.Second + 2*tickEvery // Hold is looked at once a second
	for _, c := range []struct {
		name   string
		dies   func(l *rawLane)
		ended  bool // the worker has ended the stream
		detect time.Duration
	}{
		{"its connections were reset", func(l *rawLane) { _ = l.conn.Close() }, false, 0},
		{"its connections were reset, all is written", func(l *rawLane) { _ = l.conn.Close() }, true, 0},
		{"it says nothing", func(*rawLane) {}, false, 3 * time.Second},
		{"it says nothing, all is written", func(*rawLane) {}, true, 3 * time.Second},
	} {
		inFakeTime(t, c.name, func(t *testing.T) {
			f := newRawFront(t, Config{}, memory.Config{})
			l := f.lane(t)
			hold := f.send.cfg.Hold
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
			time.Sleep(4 * time.Second) // the lane is known to be dead before the Drain
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
		for _, e := range p.recv.peer(p.id).description().Planes[0].Endpoints {
			p.net.Allow(e)
		}
		carry(t, in, out, 0)
		finish(t, in, out)
		if err := <-drained; err != nil {
			t.Error(err)
		}
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
