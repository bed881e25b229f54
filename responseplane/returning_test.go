package responseplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	discoverymemory "github.com/laneway-ai/laneway/discovery/memory"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// twoWays are a frontend and worker processes that share two planes: fast, the first choice, and safe.
type twoWays struct {
	fast, safe *memory.Network
	front      *responseplane.Frontend
	endpoints  map[string][]string // on each plane, of all workers
	handled    map[string]int      // requests by worker, counted once each time that one is delivered
	mu         sync.Mutex
}

// newTwoWays must be called in a bubble, where nothing takes time that need not.
func newTwoWays(t *testing.T, workers int, resume time.Duration) *twoWays {
	t.Helper()
	w := &twoWays{fast: memory.NewNetwork(memory.Config{Plane: "fast"}),
		safe:      memory.NewNetwork(memory.Config{Plane: "safe"}),
		endpoints: map[string][]string{}, handled: map[string]int{}}
	hub, err := discoverymemory.New(discoverymemory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := hub.Registry("test")
	if err != nil {
		t.Fatal(err)
	}
	deliverer, err := hub.Deliverer("test")
	if err != nil {
		t.Fatal(err)
	}
	both := func(id *transport.Identity) []transport.Transport {
		return []transport.Transport{w.fast.Transport(id.ID), w.safe.Transport(id.ID)}
	}
	id := identity(t)
	planes := both(id)
	if w.front, err = responseplane.NewFrontend(responseplane.FrontendConfig{Identity: id, Name: "front",
		Transports: planes, Deliverer: deliverer, ResumeTimeout: resume,
		Router: responseplane.RouterRoundRobin}); err != nil {
		t.Fatal(err)
	}
	ctx, unfollow := context.WithCancel(context.Background())
	following := make(chan struct{})
	go func() { defer close(following); _ = w.front.Follow(ctx, registry) }()
	t.Cleanup(func() {
		unfollow()
		<-following
		closeAll(t, w.front, deliverer, registry, planes[0], planes[1])
		checkZero(t, "frontend", w.front.Stats())
	})
	for i := range workers {
		w.startWorker(t, fmt.Sprintf("w%d", i), both, hub)
	}
	eventually(t, "all workers", func() bool { _, n := w.front.Counts(); return n == workers })
	return w
}

// startWorker starts a process whose worker answers each request with one token.
func (w *twoWays) startWorker(t *testing.T, name string, both func(*transport.Identity) []transport.Transport,
	hub *discoverymemory.Hub) {
	t.Helper()
	id := identity(t)
	planes := both(id)
	worker, err := responseplane.NewWorker(responseplane.WorkerConfig{Identity: id, Name: "process-" + name,
		Transports: planes, BindAddr: "worker:0", ServerEndpoints: 2})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := hub.Registry("test")
	if err != nil {
		t.Fatal(err)
	}
	deliverer, err := hub.Deliverer("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeAll(t, deliverer, registry, worker, planes[0], planes[1])
		checkZero(t, name, worker.Stats())
	})
	if err := worker.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range worker.Descriptor().Planes {
		w.endpoints[p.Name] = append(w.endpoints[p.Name], p.Endpoints...)
	}
	rec := discovery.Worker{ID: name, Models: []string{model}, Node: worker.Descriptor()}
	if _, err := worker.Serve(t.Context(), deliverer, rec,
		func(_ discovery.Request, out *responseplane.Writer) discovery.Reply {
			w.mu.Lock()
			w.handled[name]++
			w.mu.Unlock()
			if out.TrySend([]byte("token")) == nil {
				_ = out.Complete(nil)
			}
			return discovery.Reply{Answer: discovery.Accepted}
		}); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Register(t.Context(), []discovery.Worker{rec}); err != nil {
		t.Fatal(err)
	}
}

// block has nothing of a plane arrive any more, without a word to the sender.
func (w *twoWays) block(plane string) {
	n := map[string]*memory.Network{"fast": w.fast, "safe": w.safe}[plane]
	for _, a := range w.endpoints[plane] {
		n.Silence(a)
	}
	n.Stall()
}

// ask makes a request and takes the whole answer.
func (w *twoWays) ask(ctx context.Context, req responseplane.Request) (retries int, err error) {
	req.Model = model
	r, err := w.front.Open(ctx, req)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if rec, err := r.Next(ctx); err != nil || string(rec) != "token" {
		return 0, fmt.Errorf("record %q: %w", rec, err)
	}
	if _, err := r.Next(ctx); err != io.EOF {
		return 0, fmt.Errorf("end: %w", err)
	}
	return r.Retries(), nil
}

// TestRequestsWaitForALinkThatReturns: all of the plane that a link is on is blocked. A request each 100 ms, before
// that is noticed, while no lane is up and after it, is answered, at the first attempt and by one run.
func TestRequestsWaitForALinkThatReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoWays(t, 1, 0)
		if _, err := w.ask(t.Context(), responseplane.Request{}); err != nil {
			t.Fatal(err)
		}
		w.block("fast")
		const n = 60
		var wg sync.WaitGroup
		var longest time.Duration
		for i := range n {
			wg.Go(func() {
				begun := time.Now()
				retries, err := w.ask(t.Context(), responseplane.Request{ID: fmt.Sprint(i)})
				if err != nil || retries != 0 {
					t.Errorf("request %d: %d retries, %v after %v", i, retries, err, time.Since(begun))
				}
				w.mu.Lock()
				longest = max(longest, time.Since(begun))
				w.mu.Unlock()
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		if w.handled["w0"] != n+1 {
			t.Errorf("%d requests were delivered for %d", w.handled["w0"], n+1)
		}
		// 3 s until the lanes are dead, 1 s for the plane that was silent, and what ticks and backoff add.
		if longest > 4500*time.Millisecond {
			t.Errorf("a request took %v", longest)
		}
		st := w.front.Stats()
		if st.StreamsEnded["complete"] != n+1 || st.Planes["safe"].RecordsIn == 0 || st.Planes["fast"].RecordsIn == 0 {
			t.Errorf("ends %v, planes %+v", st.StreamsEnded, st.Planes)
		}
	})
}

// TestRequestsDoNotWaitForEver: a link that does not come back is given up after ResumeTimeout, or when the first
// record is due, or when the caller goes; and a process that is known to be dead is not waited for.
func TestRequestsDoNotWaitForEver(t *testing.T) {
	const resume = 8 * time.Second
	for _, c := range []struct {
		name   string
		first  time.Duration
		cancel time.Duration
		want   error
		within time.Duration
	}{
		{"the link is lost", 0, 0, responseplane.ErrUnavailable, resume},
		{"the first record is due", 2 * time.Second, 0, responseplane.ErrUnavailable, 2 * time.Second},
		{"the caller goes", 0, time.Second, context.DeadlineExceeded, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTwoWays(t, 1, resume)
				// so that the lanes are watched each second
				first, err := w.front.Mint(t.Context(), w.node(), responseplane.MintOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer first.Close()
				w.block("fast")
				w.block("safe")
				eventually(t, "no lane", func() bool { _, n := w.front.Counts(); return n == 0 })
				ctx := t.Context()
				if c.cancel > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, c.cancel)
					defer stop()
				}
				begun := time.Now()
				_, err = w.ask(ctx, responseplane.Request{FirstRecordTimeout: c.first})
				if !errors.Is(err, c.want) {
					t.Errorf("%v, expected %v", err, c.want)
				}
				if d := time.Since(begun); d < c.within-500*time.Millisecond || d > c.within+500*time.Millisecond {
					t.Errorf("told after %v, expected %v", d, c.within)
				}
				eventually(t, "the link is lost", func() bool { return w.front.Stats().Links == 0 })
				begun = time.Now()
				if _, err := w.ask(t.Context(), responseplane.Request{}); !errors.Is(err,
					responseplane.ErrUnavailable) || time.Since(begun) != 0 {
					t.Errorf("after the link was lost: %v after %v", err, time.Since(begun))
				}
			})
		})
	}
}

// TestOthersAreAskedBeforeALinkIsWaitedFor: of two workers one has lost its lanes, and the other takes everything.
func TestOthersAreAskedBeforeALinkIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoWays(t, 2, 0)
		at := w.endpoints["fast"][:2] // of the first
		for _, a := range at {
			w.fast.Silence(a)
		}
		for _, c := range w.fast.Conns() {
			if to := c.Info().Remote.String(); to == at[0] || to == at[1] {
				c.Stall()
				c.Peer().Stall()
			}
		}
		begun := time.Now()
		for i := range 20 { // the first of them go to the silent lane, and are cut half a second after its death
			if _, err := w.ask(t.Context(), responseplane.Request{ID: fmt.Sprint(i)}); err != nil {
				t.Fatalf("request %d: %v after %v", i, err, time.Since(begun))
			}
		}
		if d := time.Since(begun); d > 4500*time.Millisecond {
			t.Errorf("20 requests took %v", d)
		}
		if w.handled["w1"] < 19 {
			t.Errorf("delivered: %v", w.handled)
		}
	})
}

// node is the identity of the first worker's process.
func (w *twoWays) node() responseplane.NodeID {
	id, _ := transport.ParseNodeID(w.front.Workers()[0].Node)
	return id
}
