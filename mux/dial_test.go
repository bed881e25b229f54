package mux

import (
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

func TestHelloTimeout(t *testing.T) {
	h := wire.HelloBody{Lowest: 1, Highest: 1, Node: frontID, Link: 1, Serial: 1, OwnSecret: [16]byte{1}}
	for name, b := range map[string][]byte{
		"nothing": nil, "half a header": wire.AppendHello(nil, &h)[:5], "half a HELLO": wire.AppendHello(nil, &h)[:50],
	} {
		inFakeTime(t, name, func(t *testing.T) {
			f := newRawFront(t, Config{}, memory.Config{})
			begun := time.Now()
			var all []*rawLane
			for range maxHandshakes + 10 { // the last ones wait for a place
				l := f.dial(t)
				if len(b) > 0 {
					l.send(t, b)
				}
				l.pump()
				all = append(all, l)
			}
			<-all[0].done
			took(t, "closed", begun, helloTimeout, helloTimeout+time.Millisecond)
			for _, l := range all {
				<-l.done
			}
			took(t, "all closed", begun, 2*helloTimeout, 2*helloTimeout+time.Millisecond)
			f.lane(t) // and the worker is well
		})
	}
	inFakeTime(t, "a worker that says nothing", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, func(*wire.HelloBody) []byte { return nil })
		time.Sleep(time.Minute)
		st, _ := w.recv.State(workerID)
		if st.Up || st.Err == nil {
			t.Errorf("state %+v", st)
		}
		if n := len(w.lanes); n < 7 || n > 12 {
			t.Errorf("%d handshakes in a minute, each may take 5 s", n)
		}
	})
}

func TestRedialBacksOff(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, nil)
		l := w.lane(t)
		w.net.Refuse(l.conn.Info().Local.String(), nil)
		front := w.recv.transports[0]
		before := front.Counters().DialErrors
		w.net.Cut(nil)
		time.Sleep(time.Minute)
		if n := front.Counters().DialErrors - before; n < 30 || n > 80 {
			t.Errorf("%d dials in a minute", n)
		}
		w.net.Allow(l.conn.Info().Local.String())
		begun := time.Now()
		w.lane(t)
		took(t, "back", begun, 0, backoffMax)
	})
}

func TestDialOnDemand(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		w := newRawWorker(t, Config{OnDemand: true}, memory.Config{}, nil)
		time.Sleep(time.Minute)
		if n := w.recv.transports[0].Counters().Dials; n != 0 {
			t.Fatalf("%d dials before anybody asked", n)
		}
		in, err := w.recv.Mint(t.Context(), workerID, MintOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		w.lane(t)
	})
}
