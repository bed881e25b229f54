package responseplane_test

import (
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// TestAddAndRemoveRace: a peer that is added, put by a registry and removed by several at once is there or not, and nothing
// breaks.
func TestAddAndRemoveRace(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](), rigConfig{})
	p := r.procs[0]
	d := p.worker.Descriptor()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if err := r.front.AddPeer(d); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				r.front.RemovePeer(p.nodeID())
			}
		})
	}
	wg.Wait()
	if err := r.front.AddPeer(d); err != nil {
		t.Fatal(err)
	}
	r.reachable(t, 1)
}

// TestStopped: a worker that cuts its output short because of Stop says so, and the caller sees its own cancel.
func TestStopped(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		resp, w := r.open(t, r.procs[0])
		if err := w.Send(t.Context(), []byte("one")); err != nil {
			t.Fatal(err)
		}
		resp.Stop()
		for deadline := time.Now().Add(patience); !w.Stopping(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("Stop did not reach the engine")
			}
		}
		if err := w.Stopped([]byte("usage")); err != nil {
			t.Fatal(err)
		}
		if rec, err := resp.Next(t.Context()); err != nil || string(rec) != "one" {
			t.Fatalf("%q, %v", rec, err)
		}
		wantEnd(t, next(t, resp), responseplane.ErrCanceled, responseplane.EndStopped, 0, false)
		if string(resp.Trailer()) != "usage" {
			t.Errorf("the trailer is %q", resp.Trailer())
		}
		_ = resp.Close()
	})
}
