package dial

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// A gate lets no more through at once than it has places, gives each back once, whatever ends the wait for it, and lets
// nobody wait for ever.
func TestGate(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		g := newGate()
		var in, most, gaveUp atomic.Int64
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 { // some stop to wait in the moment in which places come free
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(i%20)*100*time.Millisecond)
				}
				defer cancel()
				pass, err := g.enter(ctx)
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					gaveUp.Add(1)
					return
				}
				n := in.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Duration(i%5) * 100 * time.Millisecond)
				in.Add(-1)
				pass()
			})
		}
		wg.Wait()
		if n := most.Load(); n != maxDials {
			t.Errorf("%d were through at once, expected %d", n, maxDials)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.free != maxDials || g.queue.Len() != 0 {
			t.Errorf("%d places are free and %d wait, expected %d and 0", g.free, g.queue.Len(), maxDials)
		}
		if gaveUp.Load() == 0 {
			t.Error("nobody gave up")
		}
	})
	inFakeTime(t, "the longest waiter", func(t *testing.T) { // goes through although somebody always comes later
		g := newGate()
		for range maxDials {
			_, _ = g.enter(t.Context()) // kept for all of gateFor
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = g.enter(t.Context())
			close(first)
		})
		synctest.Wait()
		for range 10 * maxDials {
			wg.Go(func() { _, _ = g.enter(ctx) })
		}
		begun := time.Now()
		<-first
		took(t, "through", begun, gateFor, gateFor+time.Millisecond)
		cancel()
		wg.Wait()
		time.Sleep(gateFor + time.Millisecond)
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.free != maxDials {
			t.Errorf("%d places are free", g.free)
		}
	})
}

// A live node that comes just after many that do not answer, before they have had their first turn, is not behind them.
func TestNewNodeIsNotBehindDeadOnes(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		net := memory.NewNetwork(memory.Config{Proves: true})
		net.Silence("dead:1")
		f := newFront(t, Config{}, net.Transport(frontID))
		for i := range 1500 {
			add(t, f, at(transport.NodeID{4, byte(i >> 8), byte(i)}, "dead:1"))
		}
		synctest.Wait()
		serving(t, net, workerID, "good:1")
		begun := time.Now()
		add(t, f, at(workerID, "good:1"))
		awaitUp(t, f, workerID, time.Minute)
		took(t, "up", begun, 0, gateFor+50*time.Millisecond)
	})
}
