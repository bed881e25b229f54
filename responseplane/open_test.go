package responseplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
)

// roundRobin makes the second request go to another worker than the first, and so on.
func roundRobin(c *responseplane.FrontendConfig) { c.Router = responseplane.RouterRoundRobin }

// openOK opens a request, takes its one token and end, and returns who served it.
func (r *rig) openOK(t *testing.T, req responseplane.Request) (worker string, retries int) {
	t.Helper()
	if req.Model == "" {
		req.Model = model
	}
	res, err := r.front.Open(t.Context(), req)
	if err != nil {
		t.Fatalf("request %s: %v", req.ID, err)
	}
	defer res.Close()
	if rec, err := res.Next(t.Context()); err != nil || string(rec) != "token" {
		t.Fatalf("request %s: %q, %v", req.ID, rec, err)
	}
	if err := next(t, res); err != io.EOF {
		t.Fatalf("request %s: %v", req.ID, err)
	}
	if res.NodeName() != "process-"+res.Worker() {
		t.Errorf("worker %s is said to be in process %s", res.Worker(), res.NodeName())
	}
	return res.Worker(), res.Retries()
}

// status is what the frontend says of a worker.
func (r *rig) status(id string) (responseplane.WorkerStatus, bool) {
	for _, w := range r.front.Workers() {
		if w.ID == id {
			return w, true
		}
	}
	return responseplane.WorkerStatus{}, false
}

// TestOpenRefused takes every answer of a single worker to the error of Open.
func TestOpenRefused(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{front: func(c *responseplane.FrontendConfig) { c.RetryLimit = 1 }})
		p := r.procs[0]
		for _, c := range []struct {
			answer    discovery.Answer
			sentinel  error
			code      responseplane.Code
			retryable bool
			attempts  int64
		}{
			{discovery.Busy, responseplane.ErrBusy, responseplane.CodeBusy, true, 2},
			{discovery.Draining, responseplane.ErrUnavailable, responseplane.CodeDraining, true, 2},
			// one link is not asked twice
			{discovery.Stale, responseplane.ErrUnavailable, responseplane.CodeNoWorker, true, 1},
			{discovery.Unsupported, responseplane.ErrUnavailable, responseplane.CodeUnsupported, false, 1},
			{discovery.BadRequest, responseplane.ErrFailed, responseplane.CodeBadRequest, false, 1},
		} {
			t.Run(c.answer.String(), func(t *testing.T) {
				if c.answer == discovery.Stale {
					p.onRequest(func(discovery.Request, *responseplane.Writer) discovery.Reply {
						return discovery.Reply{Answer: discovery.Stale, Reason: "the test says stale"}
					})
				} else {
					p.answer(c.answer)
				}
				before := p.count.Load()
				_, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
				e := wantEnd(t, err, c.sentinel, responseplane.EndRefused, c.code, c.retryable)
				if e.Worker != p.id || !strings.Contains(e.Text, "the test says") {
					t.Errorf("the error says %+v", e)
				}
				if n := p.count.Load() - before; n != c.attempts {
					t.Errorf("%d attempts, expected %d", n, c.attempts)
				}
			})
		}
		t.Run("too large", func(t *testing.T) {
			_, err := r.front.Open(t.Context(), responseplane.Request{Model: model, Payload: make([]byte, 65<<10)})
			wantEnd(t, err, responseplane.ErrFailed, responseplane.EndRefused, responseplane.CodeTooLarge, false)
			var size *discovery.SizeError
			if !errors.As(err, &size) || size.Max != 64<<10 {
				t.Errorf("the cause is %v", err)
			}
		})
		t.Run("failed", func(t *testing.T) {
			p.onRequest(func(_ discovery.Request, w *responseplane.Writer) discovery.Reply {
				_ = w.Fail(responseplane.Failure{Code: responseplane.CodeValidation, Text: "no such sampler"})
				return discovery.Reply{Answer: discovery.Accepted}
			})
			_, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
			e := wantEnd(t, err, responseplane.ErrFailed, responseplane.EndFailed, responseplane.CodeValidation, false)
			if e.Worker != p.id || e.Text != "no such sampler" {
				t.Errorf("the error says %+v", e)
			}
		})
		t.Run("complete without a record", func(t *testing.T) {
			p.onRequest(func(_ discovery.Request, w *responseplane.Writer) discovery.Reply {
				_ = w.Complete([]byte("nothing to say"))
				return discovery.Reply{Answer: discovery.Accepted}
			})
			res, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
			if err != nil {
				t.Fatal(err)
			}
			defer res.Close()
			if err := next(t, res); err != io.EOF || string(res.Trailer()) != "nothing to say" {
				t.Errorf("got %v, trailer %q", err, res.Trailer())
			}
		})
		t.Run("unknown", func(t *testing.T) {
			for _, req := range []responseplane.Request{{Model: "huge"}, {Model: model, Worker: "w9"}} {
				_, err := r.front.Open(t.Context(), req)
				wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker,
					true)
				if name := req.Model + req.Worker; !strings.Contains(err.Error(), strings.TrimPrefix(name, model)) {
					t.Errorf("the error does not name %q: %v", name, err)
				}
			}
		})
	})
}

// TestOpenRetries: before the first record what may pass is tried elsewhere.
func TestOpenRetries(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		t.Run("busy", func(t *testing.T) {
			r := newRig(t, net, rigConfig{workers: 2, front: roundRobin})
			r.procs[0].answer(discovery.Busy)
			for i := range 10 {
				id := fmt.Sprintf("busy-%d", i)
				worker, retries := r.openOK(t, responseplane.Request{ID: id})
				_, asked := r.procs[0].seen.Load(id)
				if worker != "w1" || asked != (retries == 1) {
					t.Errorf("%s: served by %s after %d retries, the busy one was asked: %t", id, worker, retries,
						asked)
				}
			}
			if r.procs[0].count.Load() == 0 {
				t.Error("the busy worker was never asked")
			}
			if st, _ := r.status("w0"); st.Avoided {
				t.Error("a busy worker is avoided; it is full, not bad")
			}
		})
		t.Run("no responders", func(t *testing.T) {
			// The acknowledgement may take an hour: that Open returns shows that it did not wait for it.
			r := newRig(t, net, rigConfig{front: func(c *responseplane.FrontendConfig) { c.AckTimeout = time.Hour }})
			mute := r.unregistered(t, rigConfig{})
			mute.register(t) // in the registry, but nobody serves it
			r.reachable(t, 2)
			retried := 0
			for i := range 10 {
				worker, retries := r.openOK(t, responseplane.Request{ID: fmt.Sprint(i)})
				if worker != "w0" || retries > 1 {
					t.Errorf("served by %s after %d retries", worker, retries)
				}
				retried += retries
			}
			if st, _ := r.status(mute.id); st.Avoided != (retried > 0) {
				t.Errorf("%d retries, avoided: %t", retried, st.Avoided)
			}
			if _, err := r.front.Open(t.Context(), responseplane.Request{Worker: mute.id}); !errors.Is(err,
				discovery.ErrNoResponders) {
				t.Errorf("asked for by name: %v, expected the cause ErrNoResponders", err)
			}
		})
		t.Run("no first record", func(t *testing.T) {
			r := newRig(t, net,
				rigConfig{workers: 2,
					front: func(c *responseplane.FrontendConfig) { roundRobin(c); c.AvoidFor = time.Hour }})
			r.procs[0].accept() // acknowledges and never answers
			var slow string
			for i := 0; slow == ""; i++ { // the router may begin with either
				id := fmt.Sprintf("slow-%d", i)
				if worker,
					retries := r.openOK(t, responseplane.Request{ID: id,
					FirstRecordTimeout: 2 * time.Second}); worker != "w1" {
					t.Fatalf("served by %s", worker)
				} else if retries == 1 {
					slow = id
				}
			}
			w := r.procs[0].writer(t, slow)
			closed(t, "the kill of the first attempt", w.Done())
			wantEnd(t, w.Err(), responseplane.ErrDeadline, responseplane.EndDeadline, 0, true)
			if st, _ := r.status("w0"); !st.Avoided {
				t.Error("the silent worker is not avoided")
			}
			asked := r.procs[0].count.Load()
			for i := range 10 {
				r.openOK(t, responseplane.Request{ID: fmt.Sprint(i)})
			}
			if n := r.procs[0].count.Load(); n != asked {
				t.Errorf("the avoided worker was asked %d times", n-asked)
			}
		})
		t.Run("no acknowledgement", func(t *testing.T) {
			r := newRig(t, net,
				rigConfig{workers: 2,
					front: func(c *responseplane.FrontendConfig) { roundRobin(c); c.AckTimeout = 2 * time.Second }})
			release := make(chan struct{})
			r.procs[0].onRequest(func(discovery.Request, *responseplane.Writer) discovery.Reply {
				<-release
				return discovery.Reply{Answer: discovery.Accepted}
			})
			for retries, i := 0, 0; retries == 0; i++ {
				_, retries = r.openOK(t, responseplane.Request{ID: fmt.Sprint(i)})
			}
			close(release)
		})
		t.Run("an OPEN is an acknowledgement", func(t *testing.T) {
			r := newRig(t, net,
				rigConfig{front: func(c *responseplane.FrontendConfig) { c.AckTimeout = 2 * time.Second }})
			release := make(chan struct{})
			r.procs[0].onRequest(func(_ discovery.Request, w *responseplane.Writer) discovery.Reply {
				_ = w.TrySend([]byte("token"))
				_ = w.Complete(nil)
				<-release
				return discovery.Reply{Answer: discovery.Accepted}
			})
			if _, retries := r.openOK(t, responseplane.Request{}); retries != 0 {
				t.Errorf("%d retries", retries)
			}
			close(release)
		})
		t.Run("worker dies before the first record", func(t *testing.T) {
			r := newRig(t, net, rigConfig{workers: 2, front: roundRobin})
			r.procs[0].onRequest(func(discovery.Request, *responseplane.Writer) discovery.Reply {
				go r.procs[0].worker.Close() // joined by the Close at the end of the test
				return discovery.Reply{Answer: discovery.Accepted}
			})
			for retries, i := 0, 0; retries == 0; i++ {
				var worker string
				if worker, retries = r.openOK(t, responseplane.Request{ID: fmt.Sprint(i)}); worker != "w1" {
					t.Fatalf("served by %s", worker)
				}
			}
		})
		t.Run("failed retryable", func(t *testing.T) {
			r := newRig(t, net, rigConfig{workers: 2, front: roundRobin})
			r.procs[0].onRequest(func(_ discovery.Request, w *responseplane.Writer) discovery.Reply {
				_ = w.Fail(responseplane.Failure{Retryable: true, Text: "try elsewhere"})
				return discovery.Reply{Answer: discovery.Accepted}
			})
			for retries, i := 0, 0; retries == 0; i++ {
				_, retries = r.openOK(t, responseplane.Request{ID: fmt.Sprint(i)})
			}
		})
		t.Run("bounded", func(t *testing.T) {
			for limit, attempts := range map[int]int64{-1: 1, 1: 2, 2: 3, 9: 4} {
				r := newRig(t, net,
					rigConfig{workers: 4, front: func(c *responseplane.FrontendConfig) { c.RetryLimit = limit }})
				for _, p := range r.procs {
					p.answer(discovery.Busy)
				}
				_, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
				wantEnd(t, err, responseplane.ErrBusy, responseplane.EndRefused, responseplane.CodeBusy, true)
				var n int64
				for _, p := range r.procs {
					n += p.count.Load()
				}
				if n != attempts {
					t.Errorf("limit %d: %d attempts, expected %d", limit, n, attempts)
				}
			}
		})
	})
}

// TestOpenNeverRetriesAfterTheFirstRecord: the client may have seen it.
func TestOpenNeverRetriesAfterTheFirstRecord(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{workers: 2})
		for _, p := range r.procs {
			p.onRequest(func(_ discovery.Request, w *responseplane.Writer) discovery.Reply {
				_ = w.TryPut([]byte("token"))
				_ = w.Fail(responseplane.Failure{Retryable: true, Text: "half way"})
				return discovery.Reply{Answer: discovery.Accepted}
			})
		}
		res, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
		if err != nil {
			t.Fatal(err)
		}
		defer res.Close()
		if rec, err := res.Next(t.Context()); err != nil || string(rec) != "token" {
			t.Fatalf("got %q, %v", rec, err)
		}
		e := wantEnd(t, next(t, res), responseplane.ErrFailed, responseplane.EndFailed, responseplane.CodeInternal,
			false)
		if e.Records != 1 || e.Worker != res.Worker() {
			t.Errorf("the error says %+v", e)
		}
		if n := r.procs[0].count.Load() + r.procs[1].count.Load(); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

// TestOpenCanceled: a caller that goes away while it waits for the first record ends the engine's work.
func TestOpenCanceled(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		p := r.procs[0]
		p.accept()
		ctx, cancel := context.WithCancel(t.Context())
		opened := make(chan error, 1)
		go func() {
			_, err := r.front.Open(ctx, responseplane.Request{ID: "gone", Model: model})
			opened <- err
		}()
		w := p.writer(t, "gone")
		cancel()
		if err := <-opened; !errors.Is(err, context.Canceled) {
			t.Errorf("Open returned %v, expected context.Canceled", err)
		}
		closed(t, "the kill at the engine", w.Done())
		wantEnd(t, w.Err(), responseplane.ErrCanceled, responseplane.EndKilled, 0, false)

		// A deadline reaches the engine in the terms and ends the response for the consumer.
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := r.front.Open(ctx, responseplane.Request{ID: "late", Model: model})
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, responseplane.ErrDeadline) {
			t.Errorf("Open returned %v, expected a deadline", err)
		}
		w = p.writer(t, "late")
		if at, ok := w.Deadline(); !ok || time.Until(at) > 300*time.Millisecond {
			t.Errorf("the engine's deadline is %v, %t", at, ok)
		}
		closed(t, "the end at the engine", w.Done())
	})
}

// TestOpenInactivity: the bound between records holds after Open too.
func TestOpenInactivity(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		r.procs[0].onRequest(func(_ discovery.Request, w *responseplane.Writer) discovery.Reply {
			_ = w.TrySend([]byte("token"))
			return discovery.Reply{Answer: discovery.Accepted}
		})
		res, err := r.front.Open(t.Context(), responseplane.Request{ID: "stuck", Model: model,
			InactivityTimeout: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer res.Close()
		_, err = res.Next(t.Context())
		if err == nil { // the deadline may drop what waits
			err = next(t, res)
		}
		wantEnd(t, err, responseplane.ErrDeadline, responseplane.EndDeadline, 0, false)
		closed(t, "the kill at the engine", r.procs[0].writer(t, "stuck").Done())
	})
}

func TestOpenNeedsADeliverer(t *testing.T) {
	r := newRig(t, planes()["memory"](), rigConfig{front: func(c *responseplane.FrontendConfig) { c.Deliverer = nil }})
	_, err := r.front.Open(t.Context(), responseplane.Request{Model: model})
	if err == nil || !strings.Contains(err.Error(), "Deliverer") || !strings.Contains(err.Error(), "Mint") {
		t.Errorf("got %v, expected an error that names Deliverer and Mint", err)
	}
}
