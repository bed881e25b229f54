package responseplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

func TestFollow(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		first := r.procs[0]
		if got := r.front.Models(); !slices.Equal(got, []string{model}) {
			t.Errorf("models %v", got)
		}
		if err := r.front.Ready(); err != nil {
			t.Error(err)
		}

		// Added.
		second := r.unregistered(t, rigConfig{})
		second.serve(t)
		registration := second.register(t)
		r.reachable(t, 2)
		if worker, _ := r.openOK(t, responseplane.Request{Worker: second.id}); worker != second.id {
			t.Errorf("served by %s", worker)
		}

		// Changed: another model.
		rec := second.record()
		rec.Models = []string{"huge", "other"}
		changed, err := second.reg.Register(t.Context(), []discovery.Worker{rec})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new models",
			func() bool { return slices.Equal(r.front.Models(), []string{"huge", "other", model}) })
		for range 5 {
			if worker, _ := r.openOK(t, responseplane.Request{}); worker != first.id {
				t.Errorf("model %s went to %s", model, worker)
			}
		}
		if worker, _ := r.openOK(t, responseplane.Request{Model: "huge"}); worker != second.id {
			t.Errorf("model huge went to %s", worker)
		}

		// Removed: what is open goes on, nothing new goes there.
		open, w := r.open(t, second)
		if err := registration.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := changed.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the worker to be gone", func() bool { _, ok := r.status(second.id); return !ok })
		_, err = r.front.Open(t.Context(), responseplane.Request{Model: "huge"})
		wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker, true)
		if err := w.Send(t.Context(), []byte("still")); err != nil {
			t.Fatal(err)
		}
		if rec, err := open.Next(t.Context()); err != nil || string(rec) != "still" {
			t.Fatalf("got %q, %v", rec, err)
		}
		if err := w.Complete(nil); err != nil {
			t.Fatal(err)
		}
		if err := next(t, open); err != io.EOF {
			t.Fatal(err)
		}

		// Replaced: the same worker id in another process, as after a restart.
		third := r.unregistered(t, rigConfig{})
		third.id = first.id
		_ = first.del.Close()
		_ = first.worker.Close()
		third.serve(t)
		third.register(t)
		eventually(t, "the new process", func() bool {
			st, ok := r.status(first.id)
			return ok && st.Node == third.worker.Descriptor().ID && st.Reachable
		})
		res, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
		if err != nil {
			t.Fatal(err)
		}
		defer res.Close()
		if res.Node() != third.nodeID() {
			t.Errorf("served by node %s", res.Node())
		}
		for err == nil {
			_, err = res.Next(t.Context())
		}

		// A record that does not hold leaves the good one in force.
		r.hub.PutRaw("test", first.id, []byte(`{"schema": 1`))
		r.hub.PutRaw("test", "w8", []byte(`nonsense`))
		r.openOKAgain(t, third)
		if known, _ := r.front.Counts(); known != 1 {
			t.Errorf("%d workers are known: %v", known, r.front.Workers())
		}
	})
}

// openOKAgain is a request to a process whose worker has another process's id.
func (r *rig) openOKAgain(t *testing.T, p *process) {
	t.Helper()
	res, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Close()
	if res.Node() != p.nodeID() {
		t.Errorf("served by node %s", res.Node())
	}
	for err == nil {
		_, err = res.Next(t.Context())
	}
	if err != io.EOF {
		t.Error(err)
	}
}

// TestFollowAWorkerOnAnotherPlane: it is known, its trouble is said, and nothing is routed to it.
func TestFollowAWorkerOnAnotherPlane(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](), rigConfig{})
	reg, err := r.hub.Registry("test")
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	rec := discovery.Worker{ID: "foreign", Models: []string{model, "huge"},
		Node: discovery.Node{ID: identity(t).ID.String(), WireMin: 1, WireMax: 1,
			Planes: []discovery.Plane{{Name: "rdma", Endpoints: []string{"127.0.0.1:1"}}}}}
	if _, err := reg.Register(t.Context(), []discovery.Worker{rec}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the foreign worker", func() bool { _, ok := r.status("foreign"); return ok })
	if st, _ := r.status("foreign"); st.Reachable || st.Err == "" {
		t.Errorf("status %+v", st)
	}
	for range 5 {
		if worker, _ := r.openOK(t, responseplane.Request{}); worker != "w0" {
			t.Errorf("served by %s", worker)
		}
	}
	_, err = r.front.Open(t.Context(), responseplane.Request{Model: "huge"})
	wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker, true)
	if _, err := r.front.AddPeer(rec.Node); err == nil || !strings.Contains(err.Error(), "rdma") {
		t.Errorf("AddPeer: %v, expected an error that names the planes", err)
	}
}

func TestReadySaysWhatIsMissing(t *testing.T) {
	id := identity(t)
	tr := planes()[transport.PlaneTCP]()(t, id)
	defer tr.Close()
	f, err := responseplane.NewFrontend(responseplane.FrontendConfig{Identity: id,
		Transports: []transport.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Ready(); err == nil || !strings.Contains(err.Error(), "no worker is known") {
		t.Errorf("got %v", err)
	}
	bad := responseplane.Descriptor{ID: "nonsense"}
	var rec *discovery.RecordError
	if _, err := f.AddPeer(bad); !errors.As(err, &rec) {
		t.Errorf("AddPeer of a bad descriptor: %v, expected a *discovery.RecordError", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := f.AwaitPeer(ctx, id.ID); err == nil {
		t.Error("AwaitPeer of a node that is not known returned nil")
	}
}

func TestDrainOfAWorker(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		p := r.procs[0]
		res, w := r.open(t, p)
		unused := r.mint(t, p, responseplane.MintOptions{}) // terms that are under way when the drain begins
		drained := make(chan error, 1)
		go func() { drained <- p.worker.Drain(context.Background()) }()
		eventually(t, "the frontend to hear of it", func() bool { st, _ := r.status(p.id); return !st.Reachable })
		_, err := r.front.Mint(t.Context(), p.nodeID(), responseplane.MintOptions{})
		wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeDraining, true)
		_, err = p.worker.Attach(unused.Terms())
		wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeDraining, true)
		_, err = r.front.Open(t.Context(), responseplane.Request{Model: model})
		wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker, true)
		select {
		case err := <-drained:
			t.Fatalf("Drain returned %v with a response open", err)
		default:
		}
		if err := w.Put(t.Context(), []byte("last")); err != nil {
			t.Fatal(err)
		}
		if err := w.Complete(nil); err != nil {
			t.Fatal(err)
		}
		// The consumer has not read it yet; a drain waits for no slow client.
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		if rec, err := res.Next(t.Context()); err != nil || string(rec) != "last" {
			t.Fatalf("got %q, %v", rec, err)
		}
		if err := next(t, res); err != io.EOF {
			t.Fatal(err)
		}
	})
}

func TestDrainIsBounded(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](), rigConfig{})
	r.open(t, r.procs[0])
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.procs[0].worker.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("worker: %v", err)
	}
	if err := r.front.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("frontend: %v", err)
	}
}

func TestDrainOfAFrontend(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		p := r.procs[0]
		res, w := r.open(t, p)
		drained := make(chan error, 1)
		go func() { drained <- r.front.Drain(context.Background()) }()
		eventually(t, "the drain to begin", func() bool {
			probe, err := r.front.Mint(t.Context(), p.nodeID(), responseplane.MintOptions{})
			if err == nil {
				_ = probe.Close()
				return false
			}
			wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeDraining, true)
			return true
		})
		select {
		case err := <-drained:
			t.Fatalf("Drain returned %v with a response open", err)
		default:
		}
		if err := w.Complete(nil); err != nil {
			t.Fatal(err)
		}
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		if err := next(t, res); err != io.EOF {
			t.Fatal(err)
		}
	})
}

// TestPeersComeAndGo calls what may be called concurrently.
func TestPeersComeAndGo(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](), rigConfig{workers: 2})
	stable, moving := r.procs[0], r.procs[1]
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := r.front.AddPeer(moving.worker.Descriptor()); err != nil {
				t.Error(err)
			}
			_ = r.front.Workers()
			_, _ = r.front.Counts()
			_ = r.front.Peers()
			r.front.RemovePeer(moving.nodeID())
		}
	})
	for i := range 100 {
		r.openOK(t, responseplane.Request{ID: fmt.Sprint(i), Worker: stable.id})
	}
	close(stop)
	wg.Wait()
	if _, err := r.front.AddPeer(moving.worker.Descriptor()); err != nil {
		t.Fatal(err)
	}
	r.reachable(t, 2)
	if worker, _ := r.openOK(t, responseplane.Request{Worker: moving.id}); worker != moving.id {
		t.Errorf("served by %s", worker)
	}
}

func TestBadConfig(t *testing.T) {
	id := identity(t)
	tr := planes()[transport.PlaneMemory]()(t, id)
	defer tr.Close()
	front := responseplane.FrontendConfig{Router: "astrology"}
	if _, err := responseplane.NewFrontend(front); err == nil || !containsAll(err.Error(), "Identity", "Transports",
		"astrology", "least-loaded") {
		t.Errorf("got %v", err)
	}
	front = responseplane.FrontendConfig{Identity: id, Transports: []transport.Transport{tr}, Lanes: 17,
		StreamWindow: 1}
	if _, err := responseplane.NewFrontend(front); err == nil || !containsAll(err.Error(), "Lanes is 17",
		"Window is 1") {
		t.Errorf("got %v", err)
	}
	worker := responseplane.WorkerConfig{ServerEndpoints: 65}
	if _, err := responseplane.NewWorker(worker); err == nil || !containsAll(err.Error(), "Identity", "Transports",
		"ServerEndpoints is 65") {
		t.Errorf("got %v", err)
	}
}

func containsAll(s string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(s, p) })
}
