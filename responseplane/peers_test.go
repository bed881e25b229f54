package responseplane_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// TestAddAndRemoveRace: a peer that is added, put by a registry and removed by several at once is there or not, and
// nothing breaks.
func TestAddAndRemoveRace(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](), rigConfig{})
	p := r.procs[0]
	d := p.worker.Descriptor()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := r.front.AddPeer(d); err != nil {
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
	if _, err := r.front.AddPeer(d); err != nil {
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
		for deadline := time.Now().Add(patience); !w.StopRequested(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("Stop did not reach the engine")
			}
		}
		if err := w.EndStopped([]byte("usage")); err != nil {
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

// TestAddedPeer: a process of AddPeer makes the frontend ready, and Mint's context bounds the response.
func TestAddedPeer(t *testing.T) {
	front, worker, closeAll := connect(responseplane.FrontendConfig{})
	defer closeAll()
	if front.Ready() == nil {
		t.Error("ready without a worker")
	}
	node, err := front.AddPeer(worker.Descriptor())
	if err != nil || node.String() != worker.Descriptor().ID {
		t.Fatalf("%v, %v", node, err)
	}
	if err := front.AwaitPeer(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if err := front.Ready(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r, err := front.Mint(ctx, node, responseplane.MintOptions{TimeLeft: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(t.Context()); !errors.Is(err, responseplane.ErrDeadline) {
		t.Errorf("the response ended with %v, want its deadline", err)
	}
	front.RemovePeer(node)
	if front.Ready() == nil {
		t.Error("ready without a worker")
	}
}

// TestNothingLeftBySink: what a sink left is pulled, and then it is said that the sink has the response again.
func TestNothingLeftBySink(t *testing.T) {
	front, worker, closeAll := connect(responseplane.FrontendConfig{})
	defer closeAll()
	r := mint(t.Context(), front, worker)
	defer r.Close()
	var calls atomic.Int64
	ended := make(chan error, 1)
	called := make(chan struct{}, 1)
	r.OnRecords(func(recs [][]byte, err error) bool {
		if calls.Add(1) == 1 {
			called <- struct{}{}
			return false
		}
		if err != nil {
			ended <- err
		}
		return true
	})
	w, err := worker.Attach(r.Terms())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Send(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	<-called
	if batch, err := r.NextBatch(t.Context()); err != nil || len(batch) != 1 || string(batch[0]) != "a" {
		t.Errorf("%q, %v", batch, err)
	}
	if batch, err := r.NextBatch(t.Context()); err != responseplane.ErrSinkTakes || batch != nil {
		t.Errorf("%q, %v, want ErrSinkTakes", batch, err)
	}
	if err := w.Complete(nil); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != io.EOF {
		t.Error(err)
	}
}

// TestDrainingPeer: a process of AddPeer that drains takes no requests, so a frontend that has no other is not ready.
func TestDrainingPeer(t *testing.T) {
	front, worker, closeAll := connect(responseplane.FrontendConfig{})
	defer closeAll()
	r := mint(t.Context(), front, worker)
	defer r.Close()
	if _, err := worker.Attach(r.Terms()); err != nil {
		t.Fatal(err)
	}
	if err := front.Ready(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan error, 1)
	go func() { drained <- worker.Drain(ctx) }()
	defer func() { cancel(); <-drained }()
	for begun := time.Now(); front.Ready() == nil; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("ready with a worker that drains")
		}
	}
}
