package responseplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// TestVanished: a worker whose record has gone is the last choice while its link is up, and no choice afterwards.
func TestVanished(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net,
			rigConfig{front: func(c *responseplane.FrontendConfig) { roundRobin(c); c.KeepVanished = time.Hour }})
		first := r.procs[0]
		second := r.unregistered(t, rigConfig{})
		second.serve(t)
		registered := second.register(t)
		r.reachable(t, 2)
		withdraw := func(reg discovery.Registration, id string) {
			t.Helper()
			if err := reg.Withdraw(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, id+" to vanish",
				func() bool { st, ok := r.status(id); return ok && st.Vanished && st.Reachable })
		}

		withdraw(registered, second.id)
		for i := range 6 {
			if worker, _ := r.openOK(t, responseplane.Request{ID: fmt.Sprint("one-", i)}); worker != first.id {
				t.Errorf("a request went to %s, whose record has gone, although %s is there", worker, first.id)
			}
		}
		// A full worker is no reason to turn a request away that a vanished one would take.
		first.answer(discovery.Busy)
		if worker, retries := r.openOK(t, responseplane.Request{ID: "busy"}); worker != second.id || retries > 1 {
			t.Errorf("served by %s after %d retries", worker, retries)
		}

		// Nobody is in the registry any more, as after an outage longer than the leases.
		if err := first.reg.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all workers to vanish", func() bool { known, _ := r.front.Counts(); return known == 0 })
		if worker, _ := r.openOK(t, responseplane.Request{ID: "last"}); worker != second.id {
			t.Errorf("served by %s", worker)
		}
		if got := r.front.Models(); !slices.Equal(got, []string{model}) {
			t.Errorf("models %v", got)
		}
		if err := r.front.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}

		// Put again, it is an ordinary worker.
		registered = second.register(t)
		r.reachable(t, 1)
		if st, _ := r.status(second.id); st.Vanished {
			t.Errorf("%+v", st)
		}
		withdraw(registered, second.id)

		// A process that says that it drains, and one whose link is down, are none any more.
		if err := second.worker.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the draining worker to be gone", func() bool { _, ok := r.status(second.id); return !ok })
		if err := first.worker.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the model to be gone", func() bool { return len(r.front.Models()) == 0 })
		_, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
		wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker, true)
	})
}

// TestVanishedForGood: KeepVanished bounds it, also while the link is up.
func TestVanishedForGood(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](),
		rigConfig{front: func(c *responseplane.FrontendConfig) { c.KeepVanished = 50 * time.Millisecond }})
	if err := r.procs[0].reg.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker to be gone",
		func() bool { return len(r.front.Workers()) == 0 && len(r.front.Models()) == 0 })
	_, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
	wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker, true)
	if !r.procs[0].linked() {
		t.Error("the link was given up with the record")
	}
}

// linked says whether a frontend has a lane to the process.
func (p *process) linked() bool { return p.worker.Stats().Links > 0 }

// TestBlame: a worker that loses a response in its middle is avoided, and one that was put again in the same process
// keeps its name.
func TestBlame(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net,
			rigConfig{front: func(c *responseplane.FrontendConfig) { c.AvoidFor = time.Hour; c.RetryLimit = -1 }})
		p := r.procs[0]
		first := func(id string) func() *responseplane.Response {
			p.accept()
			done := make(chan *responseplane.Response, 1)
			go func() {
				res, err := r.front.Open(context.Background(), responseplane.Request{ID: id, Model: model,
					InactivityTimeout: 300 * time.Millisecond})
				if err != nil {
					t.Errorf("request %s: %v", id, err)
				}
				done <- res
			}()
			if err := p.writer(t, id).Send(t.Context(), []byte("token")); err != nil {
				t.Fatal(err)
			}
			return func() *responseplane.Response { return <-done }
		}
		res := first("silent")()
		if res == nil {
			return
		}
		defer res.Close()
		if _, err := res.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		var e *responseplane.Error
		if err := next(t, res); !errors.As(err, &e) || e.Kind != responseplane.EndDeadline {
			t.Fatalf("ended with %v", err)
		}
		eventually(t, "the worker to be avoided", func() bool { st, _ := r.status(p.id); return st.Avoided })
		rec := p.record()
		rec.MaxRunning = 7
		if _, err := p.reg.Register(t.Context(), []discovery.Worker{rec}); err != nil {
			t.Fatal(err)
		}
		for range 20 { // the change is seen at some time
			if st, _ := r.status(p.id); !st.Avoided {
				t.Fatal("a worker that was put again is not avoided any more")
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// TestRetriesByReason: each attempt that is made again is counted under why, also when the request fails in the end.
func TestRetriesByReason(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](),
		rigConfig{workers: 2, front: func(c *responseplane.FrontendConfig) {
			c.RetryLimit, c.AckTimeout = 1, 50*time.Millisecond
		}})
	want := make(map[string]uint64)
	for _, c := range []struct {
		reason string
		handle responseplane.Handler
	}{
		{"busy", func(discovery.Request, *responseplane.Writer) discovery.Reply {
			return discovery.Reply{Answer: discovery.Busy, Reason: "full"}
		}},
		{"draining", func(discovery.Request, *responseplane.Writer) discovery.Reply {
			return discovery.Reply{Answer: discovery.Draining, Reason: "leaving"}
		}},
		{"stale", func(discovery.Request, *responseplane.Writer) discovery.Reply {
			return discovery.Reply{Answer: discovery.Stale, Reason: "who"}
		}},
		{"first_record_timeout", func(discovery.Request, *responseplane.Writer) discovery.Reply {
			return discovery.Reply{Answer: discovery.Accepted}
		}},
		{"failed", func(_ discovery.Request, w *responseplane.Writer) discovery.Reply {
			_ = w.Fail(responseplane.Failure{Text: "out of luck", Retryable: true})
			return discovery.Reply{Answer: discovery.Accepted}
		}},
	} {
		for _, p := range r.procs {
			p.onRequest(c.handle)
		}
		_, err := r.front.Open(t.Context(), responseplane.Request{ID: c.reason, Model: model,
			FirstRecordTimeout: 100 * time.Millisecond})
		if err == nil {
			t.Fatalf("%s: served", c.reason)
		}
		want[c.reason]++
		for name, n := range r.front.Retries() {
			if n != want[name] {
				t.Errorf("after %s (%v): %d retries of %s, expected %d", c.reason, err, n, name, want[name])
			}
		}
	}
	for _, p := range r.procs {
		if err := p.del.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
	wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker, true)
	if n := r.front.Retries()["no_responders"]; n != 1 {
		t.Errorf("%d retries because nobody responded", n)
	}
}

// scripted is a registry whose one watch tells what the test sends.
type scripted struct {
	discovery.Registry
	events chan discovery.Event
}

func (s scripted) Watch(context.Context) (<-chan discovery.Event, error) { return s.events, nil }

// BenchmarkFollow is one worker that goes and comes back, among 50, 500 and 5,000 of one model: the cost is that of the
// change.
func BenchmarkFollow(b *testing.B) {
	for _, workers := range []int{50, 500, 5000} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			id, err := transport.NewIdentity()
			if err != nil {
				b.Fatal(err)
			}
			f, err := responseplane.NewFrontend(responseplane.FrontendConfig{Identity: id,
				Dial:       responseplane.DialOnDemand,
				Transports: []transport.Transport{memory.NewNetwork(memory.Config{}).Transport(id.ID)}})
			if err != nil {
				b.Fatal(err)
			}
			events, done := make(chan discovery.Event), make(chan error, 1)
			ctx, cancel := context.WithCancel(context.Background())
			go func() { done <- f.Follow(ctx, scripted{events: events}) }()
			record := func(i int) discovery.Worker {
				return discovery.Worker{Schema: discovery.Schema, ID: fmt.Sprint("w", i), Models: []string{model},
					Node: discovery.Node{
						ID:      fmt.Sprintf("%032x", i/64+1),
						Planes:  []discovery.Plane{{Name: transport.PlaneMemory, Endpoints: []string{"127.0.0.1:1"}}},
						WireMin: 1, WireMax: 1}}
			}
			records := make([]discovery.Worker, workers)
			for i := range records {
				records[i] = record(i)
				events <- discovery.Event{Kind: discovery.Put, Worker: records[i]}
			}
			b.ResetTimer()
			for i := range b.N {
				w := records[i*7919%workers]
				events <- discovery.Event{Kind: discovery.Delete, Worker: discovery.Worker{ID: w.ID}}
				events <- discovery.Event{Kind: discovery.Put, Worker: w}
			}
			b.StopTimer()
			close(events) // as a registry does when its watch ends
			<-done
			cancel()
			if known, _ := f.Counts(); known != workers {
				b.Errorf("%d of %d workers are known", known, workers)
			}
			_ = f.Close()
		})
	}
}
