package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/discovery/nats"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	workers   = 5000
	frontends = 4
	// calm is the window in which nothing but keep-alives goes on.
	calm = 10 * time.Second
	// limit bounds each phase, for liveness on a loaded machine; none of it is a target.
	limit = 3 * time.Minute
)

// node is one worker process as etcd and NATS see it.
type node struct {
	id        string
	records   []discovery.Worker
	registry  *etcd.Registry
	deliverer *nats.Deliverer
	reg       discovery.Registration
	services  []discovery.Service
}

// frontend is one frontend as they see it: a watch, and requests.
type frontend struct {
	registry  *etcd.Registry
	deliverer *nats.Deliverer
	done      chan struct{}

	mu     sync.Mutex
	known  map[string]discovery.Worker
	synced bool
	bad    error
}

func (f *frontend) run(events <-chan discovery.Event) {
	defer close(f.done)
	for e := range events {
		f.mu.Lock()
		switch e.Kind {
		case discovery.Put:
			f.known[e.Worker.ID] = e.Worker
		case discovery.Delete:
			delete(f.known, e.Worker.ID)
		case discovery.Synced:
			f.synced = true
		case discovery.Invalid:
			f.bad = errors.Join(f.bad, e.Err)
		}
		f.mu.Unlock()
	}
}

func (f *frontend) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known)
}

func TestControlPlane(t *testing.T) {
	nodes := (workers + 63) / 64
	if s := os.Getenv("LANEWAY_SCALE_NODES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > workers {
			t.Fatalf("LANEWAY_SCALE_NODES=%s: use a number from 1 to %d", s, workers)
		}
		nodes = n
	}
	leaseTTL := etcd.DefaultLeaseTTL
	if s := os.Getenv("LANEWAY_SCALE_LEASE_TTL"); s != "" {
		var err error
		if leaseTTL, err = time.ParseDuration(s); err != nil {
			t.Fatalf("LANEWAY_SCALE_LEASE_TTL: %v", err)
		}
	}
	// A connection to etcd and one to NATS for each node, in this process and in the servers, which inherit the limit.
	if err := cli.NeedFiles(3*nodes+1000, fmt.Sprintf("%d nodes", nodes)); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	e, n := devtest.Etcd(t), devtest.NATS(t)
	servers := map[string]*devserver.Server{"etcd": e, "NATS": n}
	t.Logf("%d workers in %d processes, %d frontends, lease TTL %v", workers, nodes, frontends, leaseTTL)

	fronts := startFrontends(ctx, t, e, n)
	var served atomic.Int64
	began, before := time.Now(), cpu(servers)
	all := startNodes(ctx, t, e, n, nodes, leaseTTL, &served)
	registered := time.Since(began)
	await(t, "every frontend knows every worker", func() error {
		for i, f := range fronts {
			if k := f.size(); k != workers {
				return fmt.Errorf("frontend %d knows %d of %d", i, k, workers)
			}
		}
		return nil
	})
	report(t, "registered in %v, known to all frontends after %v; %s", registered.Round(time.Millisecond),
		time.Since(began).Round(time.Millisecond), since(servers, before, 0))

	before = cpu(servers)
	time.Sleep(calm)
	report(t, "keep-alives of %d leases: %s", nodes, since(servers, before, calm))
	for _, x := range all {
		if err := x.reg.Err(); err != nil {
			t.Errorf("%s: %v", x.id, err)
		}
	}

	before, began = cpu(servers), time.Now()
	latencies := deliver(ctx, t, fronts)
	took := time.Since(began)
	if got := served.Load(); got != int64(len(latencies)) {
		t.Errorf("%d requests were sent, workers took %d", len(latencies), got)
	}
	slices.Sort(latencies)
	report(t, "%d requests in %v (%.0f a second), answered in p50 %v, p99 %v; %s", len(latencies),
		took.Round(time.Millisecond), float64(len(latencies))/took.Seconds(),
		latencies[len(latencies)/2].Round(10*time.Microsecond),
		latencies[len(latencies)*99/100].Round(10*time.Microsecond), since(servers, before, took))

	// A frontend that comes late reads them all at once.
	began = time.Now()
	late := startFrontend(ctx, t, e, n, frontends)
	await(t, "a new frontend knows every worker", func() error {
		if k := late.size(); k != workers {
			return fmt.Errorf("%d of %d", k, workers)
		}
		return nil
	})
	report(t, "a new frontend knew all after %v", time.Since(began).Round(time.Millisecond))

	began = time.Now()
	parallel(t, all, func(x *node) error { return x.reg.Withdraw(ctx) })
	await(t, "every frontend has seen every worker leave", func() error {
		for i, f := range append(fronts, late) {
			if k := f.size(); k != 0 {
				return fmt.Errorf("frontend %d still knows %d", i, k)
			}
		}
		return nil
	})
	report(t, "withdrawn and forgotten after %v", time.Since(began).Round(time.Millisecond))
	for i, f := range append(fronts, late) {
		f.mu.Lock()
		if f.bad != nil || !f.synced {
			t.Errorf("frontend %d: synced %v, invalid records: %v", i, f.synced, f.bad)
		}
		f.mu.Unlock()
	}
}

func report(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("scale: "+format, args...)
}

func startFrontends(ctx context.Context, t *testing.T, e, n *devserver.Server) []*frontend {
	var out []*frontend
	for i := range frontends {
		out = append(out, startFrontend(ctx, t, e, n, i))
	}
	return out
}

func startFrontend(ctx context.Context, t *testing.T, e, n *devserver.Server, i int) *frontend {
	t.Helper()
	f := &frontend{known: make(map[string]discovery.Worker), done: make(chan struct{})}
	var err error
	if f.registry, err = etcd.New(ctx, etcd.Config{Endpoints: e.Endpoints(), Namespace: "scale"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.registry.Close() })
	if f.deliverer, err = nats.New(ctx, nats.Config{URL: n.URL(), Namespace: "scale", Name: "frontend-" +
		strconv.Itoa(i)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.deliverer.Close() })
	wctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	events, err := f.registry.Watch(wctx)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	go f.run(events)
	t.Cleanup(func() { stop(); <-f.done })
	return f
}

func startNodes(ctx context.Context, t *testing.T, e, n *devserver.Server, count int, leaseTTL time.Duration,
	served *atomic.Int64) []*node {
	all := make([]*node, count)
	for i := range all {
		x := &node{id: fmt.Sprintf("%032x", i+1)}
		for k := i; k < workers; k += count {
			x.records = append(x.records, discovery.Worker{
				Schema: discovery.Schema, ID: fmt.Sprintf("w-%d", k), Models: []string{"mock"}, MaxRunning: 256,
				Node: discovery.Node{ID: x.id, Name: fmt.Sprintf("node-%d", i), WireMin: 1, WireMax: 1,
					Planes: []discovery.Plane{
						{Name: "quic", Endpoints: []string{"10.0.0.1:7400", "10.0.0.1:7401", "10.0.0.1:7402",
							"10.0.0.1:7403"}},
						{Name: "tls", Endpoints: []string{"10.0.0.1:7400", "10.0.0.1:7401", "10.0.0.1:7402",
							"10.0.0.1:7403"}},
					}},
			})
		}
		all[i] = x
	}
	t.Cleanup(func() {
		parallel(t, all, func(x *node) error {
			var errs []error
			if x.deliverer != nil {
				errs = append(errs, x.deliverer.Close())
			}
			if x.registry != nil {
				errs = append(errs, x.registry.Close())
			}
			return errors.Join(errs...)
		})
	})
	parallel(t, all, func(x *node) (err error) {
		if x.deliverer, err = persist(ctx, func() (*nats.Deliverer, error) {
			return nats.New(ctx, nats.Config{URL: n.URL(), Namespace: "scale", Name: x.id, DialTimeout: time.Minute})
		}); err != nil {
			return err
		}
		if x.registry, err = persist(ctx, func() (*etcd.Registry, error) {
			return etcd.New(ctx, etcd.Config{Endpoints: e.Endpoints(), Namespace: "scale", LeaseTTL: leaseTTL,
				DialTimeout: time.Minute})
		}); err != nil {
			return err
		}
		for _, w := range x.records {
			want := w.ID
			s, err := x.deliverer.Serve(ctx, w, func(_ context.Context, req discovery.Request) discovery.Reply {
				if string(req.Payload[:len(want)]) != want || req.Payload[len(want)] != ' ' {
					return discovery.Reply{Answer: discovery.BadRequest, Reason: "for another worker"}
				}
				served.Add(1)
				return discovery.Reply{Answer: discovery.Accepted}
			})
			if err != nil {
				return err
			}
			x.services = append(x.services, s)
		}
		x.reg, err = x.registry.Register(ctx, x.records)
		return err
	})
	return all
}

// persist tries again while a server does not answer, as the programs do at their start (--wait-for-discovery).
func persist[T any](ctx context.Context, connect func() (T, error)) (T, error) {
	for deadline := time.Now().Add(limit); ; {
		v, err := connect()
		var unreachable *etcd.UnreachableError
		if err == nil || !(errors.Is(err, discovery.ErrUnavailable) || errors.As(err, &unreachable)) ||
			time.Now().After(deadline) {
			return v, err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// deliver has every frontend send one request of 4 KiB to every worker, 16 at a time, and returns how long each took to
// be accepted.
func deliver(ctx context.Context, t *testing.T, fronts []*frontend) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var out []time.Duration
	var wg sync.WaitGroup
	padding := make([]byte, 4096)
	for _, f := range fronts {
		var next atomic.Int64
		for range 16 {
			wg.Go(func() {
				for {
					k := next.Add(1) - 1
					if k >= workers {
						return
					}
					id := fmt.Sprintf("w-%d", k)
					began := time.Now()
					rctx, cancel := context.WithTimeout(ctx, limit)
					reply, err := f.deliverer.Deliver(rctx, id, discovery.Request{ID: id, Terms: make([]byte, 64),
						Payload: append([]byte(id+" "), padding...)})
					cancel()
					if err != nil || reply.Answer != discovery.Accepted {
						t.Errorf("request to %s: %v %v", id, reply, err)
						return
					}
					took := time.Since(began)
					mu.Lock()
					out = append(out, took)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	if len(out) != workers*len(fronts) {
		t.Fatalf("%d requests were answered", len(out))
	}
	return out
}

// parallel calls f for every node, 64 at a time, and fails the test with what went wrong.
func parallel(t *testing.T, all []*node, f func(*node) error) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	turn := make(chan struct{}, 64)
	for _, x := range all {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			if err := f(x); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("%s: %w", x.id, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		t.Fatalf("%d of %d nodes failed; the first: %v", len(errs), len(all), errs[0])
	}
}

func await(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func cpu(servers map[string]*devserver.Server) map[string]procstat.CPU {
	out := make(map[string]procstat.CPU)
	for name, s := range servers {
		if c, ok := procstat.ReadCPU(s.PID()); ok {
			out[name] = c
		}
	}
	return out
}

// since is what the servers took: CPU time, as a share of a core when the window is given, and their memory so far.
func since(servers map[string]*devserver.Server, before map[string]procstat.CPU, window time.Duration) string {
	text := ""
	for _, name := range []string{"etcd", "NATS"} {
		now, ok := procstat.ReadCPU(servers[name].PID())
		was, there := before[name]
		if !ok || !there {
			continue // not Linux: no figure
		}
		used := now.Sub(was).Total()
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %v CPU", name, used.Round(10*time.Millisecond))
		if window > 0 {
			text += fmt.Sprintf(" (%.1f%% of a core)", 100*used.Seconds()/window.Seconds())
		}
		if rss, ok := procstat.RSSPeak(servers[name].PID()); ok {
			text += fmt.Sprintf(", %d MiB", rss>>20)
		}
	}
	return text
}
