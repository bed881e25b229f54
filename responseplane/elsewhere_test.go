package responseplane_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
)

// TestRetryGoesToAnotherNode: of a process of eight engines and one of a single engine, the first fails every request,
// in each way that an attempt may fail. The next attempt is at the other process, always; and what speaks against the
// process has the engines beside avoided, too.
func TestRetryGoesToAnotherNode(t *testing.T) {
	const ack, first = 2 * time.Second, 3 * time.Second
	answer := func(a discovery.Answer) responseplane.Handler {
		return func(discovery.Request, *responseplane.Writer) discovery.Reply {
			return discovery.Reply{Answer: a, Reason: "the test says so"}
		}
	}
	for _, c := range []struct {
		reason  string
		handle  func(hang <-chan struct{}) responseplane.Handler
		takes   time.Duration // a request that meets the first process
		avoided int           // of its engines, by one request that met one
	}{
		{"busy", func(<-chan struct{}) responseplane.Handler { return answer(discovery.Busy) }, 0, 0},
		{"draining", func(<-chan struct{}) responseplane.Handler { return answer(discovery.Draining) }, 0, 8},
		{"stale", func(<-chan struct{}) responseplane.Handler { return answer(discovery.Stale) }, 0, 0},
		{"first_record_timeout", func(<-chan struct{}) responseplane.Handler { return answer(discovery.Accepted) },
			first, 1},
		{"failed", func(<-chan struct{}) responseplane.Handler {
			return func(_ discovery.Request, w *responseplane.Writer) discovery.Reply {
				_ = w.Fail(responseplane.Failure{Text: "out of luck", Retryable: true})
				return discovery.Reply{Answer: discovery.Accepted}
			}
		}, 0, 1},
		{"no_ack", func(hang <-chan struct{}) responseplane.Handler {
			return func(discovery.Request, *responseplane.Writer) discovery.Reply {
				<-hang
				return discovery.Reply{Answer: discovery.Busy}
			}
		}, ack, 8},
	} {
		t.Run(c.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, func(c *responseplane.FrontendConfig) { c.AckTimeout = ack }, 8, 1)
				hang := make(chan struct{})
				h.procs[0].handle = c.handle(hang)
				defer close(hang)
				met := 0
				for i := range 30 {
					begun := time.Now()
					process, retries, err := h.ask(t.Context(), responseplane.Request{ID: fmt.Sprint(i),
						FirstRecordTimeout: first})
					if err != nil || process != "p1" || retries > 1 {
						t.Fatalf("request %d: served by %q after %d retries, %v", i, process, retries, err)
					}
					if retries == 0 {
						continue
					}
					met++
					if took := time.Since(begun); took < c.takes || took > c.takes+300*time.Millisecond {
						t.Errorf("request %d took %v, expected %v", i, took, c.takes)
					}
					if n := len(h.avoided()); met == 1 && n != c.avoided {
						t.Errorf("%d workers are avoided: %v, expected %d", n, h.avoided(), c.avoided)
					}
				}
				if met == 0 {
					t.Error("no request met the first process")
				}
				if n := h.front.Retries()[c.reason]; n != uint64(met) {
					t.Errorf("%d retries are counted as %s, expected %d: %v", n, c.reason, met, h.front.Retries())
				}
			})
		})
	}
}

// TestRetryStaysWhereThereIsNoOther: in a single process another engine gets the next attempt; and while the only other
// process is avoided, a full engine's neighbour is better than that one.
func TestRetryStaysWhereThereIsNoOther(t *testing.T) {
	refusing := func(p *housed, a discovery.Answer, ids ...string) {
		p.handle = func(req discovery.Request, w *responseplane.Writer) discovery.Reply {
			for _, id := range ids {
				if req.Header["worker"] == id {
					return discovery.Reply{Answer: a}
				}
			}
			return oneToken(w)
		}
	}
	// The handler is told which engine was asked by the trace of the attempt.
	named := func() *responseplane.OpenTrace {
		var worker string
		return &responseplane.OpenTrace{Routed: func(w string, _ error) { worker = w },
			Deliver: func(header map[string]string) { header["worker"] = worker }}
	}
	t.Run("one process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, nil, 3)
			refusing(h.procs[0], discovery.Draining, "p0-0", "p0-1")
			for i := range 10 {
				process, retries, err := h.ask(t.Context(), responseplane.Request{ID: fmt.Sprint(i), Trace: named()})
				if err != nil || process != "p0" || retries > 2 {
					t.Errorf("request %d: %q, %d retries, %v", i, process, retries, err)
				}
			}
		})
	})
	t.Run("the other one is avoided", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, func(c *responseplane.FrontendConfig) { c.AvoidFor = time.Hour }, 2, 1)
			refusing(h.procs[1], discovery.Draining, "p1-0")
			for len(h.avoided()) == 0 {
				if _, _, err := h.ask(t.Context(), responseplane.Request{Trace: named()}); err != nil {
					t.Fatal(err)
				}
			}
			refusing(h.procs[0], discovery.Busy, "p0-0")
			asked := h.procs[1].count()
			for i := range 10 {
				process, _, err := h.ask(t.Context(), responseplane.Request{ID: fmt.Sprint(i), Trace: named()})
				if err != nil || process != "p0" {
					t.Errorf("request %d: %q, %v", i, process, err)
				}
			}
			if n := h.procs[1].count(); n != asked {
				t.Errorf("the avoided process was asked %d times", n-asked)
			}
		})
	})
}

// TestForgottenLinks: every process has forgotten its link, as after a long stop of the frontend, which does not know
// yet. Requests wait for the new links: none fails, no process is asked twice for one request over one link, none is
// avoided.
func TestForgottenLinks(t *testing.T) {
	for _, processes := range []int{1, 8} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engines := make([]int, processes)
				for i := range engines {
					engines[i] = 3
				}
				h := newHouse(t, nil, engines...)
				for _, p := range h.procs {
					p.forget()
				}
				const early, later = 20, 100
				var wg sync.WaitGroup
				ask := func() {
					wg.Go(func() {
						begun := time.Now()
						if _, _, err := h.ask(t.Context(), responseplane.Request{}); err != nil {
							t.Errorf("%v after %v", err, time.Since(begun))
						}
						// a dial while the process begins anew has no answer for 5 s
						if d := time.Since(begun); d > 6*time.Second {
							t.Errorf("a request took %v", d)
						}
					})
				}
				for range early {
					ask()
				}
				synctest.Wait()
				asked := 0
				for _, p := range h.procs {
					asked += p.count()
				}
				if asked != early*processes {
					t.Errorf("%d attempts of %d requests at %d processes that do not know the link", asked, early,
						processes)
				}
				for _, p := range h.procs {
					h.reveal(t, p)
				}
				for range later {
					ask()
					time.Sleep(time.Millisecond)
				}
				wg.Wait()
				if ids := h.avoided(); len(ids) > 0 {
					t.Errorf("avoided: %v", ids)
				}
				if n := h.front.Stats().StreamsEnded["complete"]; n != early+later {
					t.Errorf("%d answers, expected %d", n, early+later)
				}
			})
		})
	}
}

// TestForgottenAgain: a process forgets its next link, too, while another one's has not been replaced. Each request
// asks it once over each link.
func TestForgottenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil, 1, 1)
		for _, p := range h.procs {
			p.forget()
		}
		const requests = 20
		var wg sync.WaitGroup
		for range requests {
			wg.Go(func() {
				if _, _, err := h.ask(t.Context(), responseplane.Request{}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		h.renew(t, h.procs[1], true)
		time.Sleep(3 * time.Second)
		if a, b := h.procs[0].count(), h.procs[1].count(); a != requests || b != 2*requests {
			t.Errorf("%d requests asked %d times over one link, %d times over two", requests, a, b)
		}
		for _, p := range h.procs {
			h.reveal(t, p)
		}
		wg.Wait()
	})
}

// TestRequestsWaitForAFirstLink: a worker that has just become known is being dialled, and a request waits for that;
// but not for one that nobody answers for, that refuses, or that nobody knows.
func TestRequestsWaitForAFirstLink(t *testing.T) {
	known := func(t *testing.T, h *house, n int) {
		t.Helper()
		eventually(t, "the records", func() bool { k, _ := h.front.Counts(); return k == n })
	}
	t.Run("comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newEmptyHouse(t, nil)
			h.net.SetLatency(300 * time.Millisecond)
			h.start(t, "p0", 2).register(t)
			known(t, h, 2)
			begun := time.Now()
			if _, retries, err := h.ask(t.Context(), responseplane.Request{}); err != nil || retries != 0 {
				t.Errorf("%d retries, %v after %v", retries, err, time.Since(begun))
			}
			h.net.SetLatency(0)
		})
	})
	t.Run("refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newEmptyHouse(t, nil)
			p := h.start(t, "p0", 1)
			h.net.Refuse(p.bind, nil)
			p.register(t)
			known(t, h, 1)
			begun := time.Now()
			_, _, err := h.ask(t.Context(), responseplane.Request{})
			wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker, true)
			if d := time.Since(begun); d > 0 {
				t.Errorf("told after %v", d)
			}
		})
	})
	t.Run("silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newEmptyHouse(t, nil)
			p := h.start(t, "p0", 1)
			h.net.Silence(p.bind)
			p.register(t)
			known(t, h, 1)
			// until the dial has failed, and not for the next ones
			for _, bound := range []time.Duration{6 * time.Second, 0} {
				begun := time.Now()
				_, _, err := h.ask(t.Context(), responseplane.Request{})
				wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker,
					true)
				if d := time.Since(begun); d > bound {
					t.Errorf("told after %v, expected %v at most", d, bound)
				}
			}
			// Its other address is another matter.
			h.net.Allow(p.bind)
			eventually(t, "the link", func() bool { _, n := h.front.Counts(); return n == 1 })
		})
	})
	t.Run("its own deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newEmptyHouse(t, nil)
			p := h.start(t, "p0", 1)
			h.net.Silence(p.bind)
			p.register(t)
			known(t, h, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			_, _, err := h.ask(ctx, responseplane.Request{})
			if err != context.DeadlineExceeded || time.Since(begun) != time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		})
	})
	t.Run("nobody is known", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newEmptyHouse(t, nil)
			begun := time.Now()
			_, _, err := h.ask(t.Context(), responseplane.Request{})
			wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker, true)
			if time.Since(begun) != 0 {
				t.Errorf("told after %v", time.Since(begun))
			}
		})
	})
}

// TestWaitingLooksAround: a request that waits for a link that does not come takes the one that does.
func TestWaitingLooksAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newEmptyHouse(t, nil)
		for i := range 9 {
			p := h.start(t, fmt.Sprintf("p%d", i), 1)
			h.net.Silence(p.bind)
			p.register(t)
		}
		eventually(t, "the records", func() bool { n, _ := h.front.Counts(); return n == 9 })
		var wg sync.WaitGroup
		begun := time.Now()
		for range 50 {
			wg.Go(func() {
				process, _, err := h.ask(t.Context(), responseplane.Request{})
				if err != nil || process != "late" || time.Since(begun) > 2*time.Second {
					t.Errorf("served by %q after %v: %v", process, time.Since(begun), err)
				}
			})
		}
		time.Sleep(time.Second)
		h.start(t, "late", 1).register(t)
		wg.Wait()
	})
}

// TestOnDemandGoesElsewhere: a node that does not answer a dial costs a request as long as one that does not
// acknowledge, and is blamed for it.
func TestOnDemandGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newEmptyHouse(t, func(c *responseplane.FrontendConfig) {
			c.Dial, c.AvoidFor = responseplane.DialOnDemand, time.Hour
		})
		dead := h.start(t, "dead", 8)
		h.net.Silence(dead.bind)
		dead.register(t)
		h.start(t, "fine", 1).register(t)
		eventually(t, "the records", func() bool { n, _ := h.front.Counts(); return n == 9 })
		met := 0
		for i := range 20 {
			begun := time.Now()
			process, retries, err := h.ask(t.Context(), responseplane.Request{})
			if err != nil || process != "fine" || retries > 1 {
				t.Fatalf("request %d: served by %q after %d retries, %v", i, process, retries, err)
			}
			if d := time.Since(begun); d > time.Duration(retries)*responseplane.DefaultAckTimeout {
				t.Errorf("request %d took %v after %d retries", i, d, retries)
			}
			met += retries
		}
		if met != 1 || h.front.Retries()["no_link"] != 1 {
			t.Errorf("%d requests met the dead node; retries: %v", met, h.front.Retries())
		}
	})
}

// TestOnDemandPatience: where nobody answers, a request waits as long as a link may take to come, in all and not at
// each attempt.
func TestOnDemandPatience(t *testing.T) {
	for _, engines := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			h := newEmptyHouse(t, func(c *responseplane.FrontendConfig) { c.Dial = responseplane.DialOnDemand })
			dead := h.start(t, "dead", engines)
			h.net.Silence(dead.bind)
			dead.register(t)
			eventually(t, "the records", func() bool { n, _ := h.front.Counts(); return n == engines })
			for _, first := range []time.Duration{0, 3 * time.Second} {
				most := 10 * time.Second // the resume timeout
				if first > 0 {
					most = first
				}
				begun := time.Now()
				_, _, err := h.ask(t.Context(), responseplane.Request{FirstRecordTimeout: first})
				wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker,
					true)
				if took := time.Since(begun); took != most {
					t.Errorf("%d engines, first record in %v: %v after %v, want %v", engines, first, err, took, most)
				}
			}
		})
	}
}
