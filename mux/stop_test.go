package mux

import (
	"errors"
	"io"
	"testing"
	"time"
)

// STOP asks the engine to finish, and reaches it once the request is there, also if it was first, also over deaths;
// what the engine still writes arrives.
func TestStop(t *testing.T) {
	for _, c := range []struct {
		name          string
		early, deaths bool // STOP comes before the request; connections die between
	}{
		{"after the request", false, false}, {"before the request", true, false},
		{"after, over deaths", false, true}, {"before, over deaths", true, true},
	} {
		inFakeTime(t, c.name, func(t *testing.T) {
			p := newPair(t, pairConfig{})
			in, err := p.recv.Mint(t.Context(), p.id, MintOptions{})
			if err != nil {
				t.Fatal(err)
			}
			stop := func() {
				if c.deaths {
					p.net.Cut(nil)
				}
				in.Stop()
				in.Stop()
				time.Sleep(time.Millisecond)
				if c.deaths {
					p.net.Cut(nil)
				}
			}
			if c.early {
				stop()
				time.Sleep(time.Second)
			}
			out, err := p.send.Attach(in.Terms())
			if err != nil {
				t.Fatal(err)
			}
			if !c.early {
				if out.Stopping() {
					t.Error("nobody has asked for it")
				}
				carry(t, in, out, 0)
				stop()
			}
			waitFor(t, "STOP", out.Stopping)
			if err := out.Err(); err != nil {
				t.Errorf("the stream has ended: %v", err)
			}
			if err := out.TrySend(makeRecord(nil, 1, 1, 64)); err != nil { // usage, say
				t.Fatal(err)
			}
			if err := out.Fail(End{Type: EndStopped}); err != nil {
				t.Fatal(err)
			}
			if rec, err := in.Next(t.Context()); err != nil || checkRecord(rec, 1, 1) != nil {
				t.Errorf("the last record: %q, %v", rec, err)
			}
			if _, err := in.Next(t.Context()); err == io.EOF {
				t.Error("it looks complete")
			} else if got, _ := endType(err); got != EndStopped {
				t.Error(err)
			}
			_ = in.Close()
			p.settled(t)

			next, nextOut := p.open(t) // nothing of it stays with the index
			if next.slot.Index() != in.slot.Index() || nextOut.Stopping() {
				t.Errorf("the next stream of index %d is asked to stop: %t", next.slot.Index(), nextOut.Stopping())
			}
			carry(t, next, nextOut, 0)
			finish(t, next, nextOut)
			p.settled(t)
		})
	}
}

// KILL beats STOP, whichever the worker hears of first, and a request that comes after both is refused.
func TestKillBeatsStop(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, pairConfig{})
		for _, early := range []bool{false, true} {
			in, err := p.recv.Mint(t.Context(), p.id, MintOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var out *OutStream
			if !early {
				if out, err = p.send.Attach(in.Terms()); err != nil {
					t.Fatal(err)
				}
			}
			in.Stop()
			in.Kill(End{Type: EndRefused})
			in.Stop()
			if early {
				p.settled(t)
				if _, err := p.send.Attach(in.Terms()); !errors.Is(err, ErrStaleTerms) {
					t.Errorf("the request comes later: %v", err)
				}
			} else {
				<-out.Done()
				if got, _ := endType(out.Err()); got != EndRefused {
					t.Errorf("the engine is told: %v", out.Err())
				}
			}
			if e := in.End(); e == nil || e.Type != EndRefused {
				t.Errorf("the consumer's end is %+v", e)
			}
			_ = in.Close()
			p.settled(t)
		}
	})
}
