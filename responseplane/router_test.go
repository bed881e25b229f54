package responseplane_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// holding has a worker send one token to each request and leave it open.
func (p *process) holding() {
	p.onRequest(func(req discovery.Request, w *responseplane.Writer) discovery.Reply {
		p.count.Add(1)
		if err := w.TrySend([]byte("token")); err != nil {
			return discovery.Reply{Answer: discovery.Busy, Reason: err.Error()}
		}
		return discovery.Reply{Answer: discovery.Accepted}
	})
}

// TestRouters holds each policy to what it promises over workers whose responses stay open.
func TestRouters(t *testing.T) {
	const workers, each = 6, 30
	for _, policy := range []responseplane.Router{responseplane.RouterLeastLoaded, responseplane.RouterRoundRobin,
		responseplane.RouterRandom} {
		t.Run(string(policy), func(t *testing.T) {
			r := newRig(t, planes()[transport.PlaneMemory](),
				rigConfig{workers: workers, front: func(c *responseplane.FrontendConfig) { c.Router = policy }})
			for _, p := range r.procs {
				p.holding()
			}
			open := make([]int, workers)
			ask := func() *responseplane.Response {
				res, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
				if err != nil {
					t.Fatal(err)
				}
				open[slices.IndexFunc(r.procs, func(p *process) bool { return p.id == res.Worker() })]++
				return res
			}
			var held []interface{ Close() error }
			for range workers * each {
				held = append(held, ask())
			}
			lowest, highest := slices.Min(open), slices.Max(open)
			t.Logf("open at the workers: %v", open)
			switch policy {
			case responseplane.RouterRoundRobin:
				if lowest != each || highest != each {
					t.Errorf("round-robin is uneven: %v", open)
				}
			case responseplane.RouterLeastLoaded: // the better of two: about log log n apart
				if highest-lowest > 6 {
					t.Errorf("least-loaded is uneven: %v", open)
				}
			case responseplane.RouterRandom:
				if lowest == 0 || lowest == highest {
					t.Errorf("random leaves a worker out, or is no coincidence: %v", open)
				}
			}
			if policy == responseplane.RouterLeastLoaded {
				// A worker whose responses have ended draws level with the others again.
				for _, res := range held {
					if res.(*responseplane.Response).Worker() == r.procs[0].id {
						closeAll(t, res)
					}
				}
				open[0] = 0
				for range 10 * each {
					held = append(held, ask())
				}
				t.Logf("after the first was emptied: %v", open)
				if slices.Max(open)-slices.Min(open) > 15 {
					t.Errorf("an emptied worker stays behind: %v", open)
				}
			}
			closeAll(t, held...)
		})
	}
}

// TestOpenTrace holds that each attempt's steps are told in order, and that what is put into an attempt's header
// reaches its worker only.
func TestOpenTrace(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](), rigConfig{workers: 2, front: roundRobin})
	r.procs[0].answer(discovery.Busy)
	var got string
	r.procs[1].onRequest(func(req discovery.Request, w *responseplane.Writer) discovery.Reply {
		got = fmt.Sprint(req.Header)
		_ = w.TrySend([]byte("token"))
		_ = w.Complete(nil)
		return discovery.Reply{Answer: discovery.Accepted}
	})
	var steps []string
	note := func(format string, a ...any) { steps = append(steps, fmt.Sprintf(format, a...)) }
	attempt := 0
	trace := &responseplane.OpenTrace{
		Route:  func(n int) { attempt = n; note("route %d", n) },
		Routed: func(worker string, err error) { note("routed %s %v", worker, err) },
		Deliver: func(header map[string]string) {
			note("deliver")
			header["attempt"] = fmt.Sprint(attempt)
		},
		Delivered:   func(err error) { note("delivered busy=%t", errors.Is(err, responseplane.ErrBusy)) },
		FirstRecord: func(err error) { note("first record %v", err) },
	}
	header := map[string]string{"given": "yes"}
	for range 4 { // the router begins with either
		steps = nil
		res, err := r.front.Open(t.Context(), responseplane.Request{Model: model, Header: header, Trace: trace})
		if err != nil {
			t.Fatal(err)
		}
		retries := res.Retries()
		closeAll(t, res)
		want := []string{}
		if retries == 1 {
			want = []string{"route 0", "routed w0 <nil>", "deliver", "delivered busy=true"}
		}
		want = append(want, fmt.Sprintf("route %d", retries), "routed w1 <nil>", "deliver", "delivered busy=false",
			"first record <nil>")
		if !slices.Equal(steps, want) {
			t.Errorf("%d retries: %q, want %q", retries, steps, want)
		}
		if want := fmt.Sprint(map[string]string{"attempt": fmt.Sprint(retries), "given": "yes"}); got != want ||
			len(header) != 1 {
			t.Errorf("the worker got the header %s, want %s; the caller's is now %v", got, want, header)
		}
	}
	steps = nil
	if _, err := r.front.Open(t.Context(), responseplane.Request{Model: "none", Trace: trace}); err == nil ||
		len(steps) != 2 {
		t.Errorf("no worker: %v, %q", err, steps)
	}
	// No function is a must.
	res, err := r.front.Open(t.Context(), responseplane.Request{Model: model, Trace: &responseplane.OpenTrace{}})
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, res)
}
