package mux

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// Connections that say nothing delay a lane by moments, never more of them than places are in their handshake at once, and
// those that have begun to speak keep their places.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	inFakeTime(t, "many", func(t *testing.T) {
		const many = 600
		f := newRawFront(t, Config{}, memory.Config{Backlog: 2 * many})
		f.lane(t)
		for range many {
			f.dial(t)
		}
		synctest.Wait()
		if n := len(f.send.handshakes); n != maxHandshakes {
			t.Fatalf("%d handshakes, expected %d", n, maxHandshakes)
		}
		begun := time.Now()
		f.lane(t)
		took(t, "a lane", begun, 0, (many/maxHandshakes+1)*silentGrace)
	})
	inFakeTime(t, "without end", func(t *testing.T) { // a hundred more a second, for a minute
		f := newRawFront(t, Config{}, memory.Config{Backlog: 10000})
		f.lane(t)
		for i := range 6000 {
			f.dial(t)
			time.Sleep(10 * time.Millisecond)
			if i%500 == 499 {
				begun := time.Now()
				f.lane(t)
				took(t, "a lane", begun, 0, 2*silentGrace)
			}
		}
	})
	inFakeTime(t, "some have begun to speak", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{Backlog: 2 * maxHandshakes})
		h := f.hello()
		b := wire.AppendHello(nil, &h)
		slow := f.dial(t)
		slow.send(t, b[:5])
		for range maxHandshakes + 100 {
			f.dial(t)
		}
		time.Sleep(4 * time.Second) // the silent ones have made room since
		slow.send(t, b[5:])
		if _, err := readHello(slow.conn); err != nil {
			t.Errorf("a slow dialler lost its place: %v", err)
		}
	})
	inFakeTime(t, "no need", func(t *testing.T) { // while there are places nobody is hurried
		f := newRawFront(t, Config{}, memory.Config{})
		l := f.dial(t)
		time.Sleep(helloTimeout - time.Millisecond)
		if err := f.greet(t, l, f.hello()); err != nil {
			t.Error(err)
		}
	})
	inFakeTime(t, "Close while all places are taken", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{Backlog: 2 * maxHandshakes})
		h := f.hello()
		for range maxHandshakes + 10 {
			f.dial(t).send(t, wire.AppendHello(nil, &h)[:5])
		}
		synctest.Wait()
		closeInTime(t, "Sender", f.send)
	})
}
