package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/lab/refplane"
	"github.com/laneway-ai/laneway/internal/program/seldom"
	"github.com/laneway-ai/laneway/responseplane"
)

// armWorker is one worker of a reference arm.
type armWorker struct {
	rec  discovery.Worker
	open atomic.Int64 // responses from here
}

// armTable knows the workers of a reference arm, connects to their processes and chooses among them, by the plane's
// policies.
type armTable struct {
	router responseplane.Router
	ref    *refplane.Frontend
	log    *slog.Logger
	turn   atomic.Uint64
	wg     sync.WaitGroup // follow and the dialling of each process

	mu      sync.RWMutex
	workers map[string]*armWorker
	byModel map[string][]*armWorker
	nodes   map[string]*armNode
}

// armNode is a process; it is dialled as long as a worker's record names it.
type armNode struct {
	workers int
	stop    context.CancelFunc
	up      atomic.Bool
	err     atomic.Pointer[error] // why it is not up
}

func newArmTable(router responseplane.Router, ref *refplane.Frontend, log *slog.Logger) *armTable {
	return &armTable{router: router, ref: ref, log: seldom.Logger(log), workers: map[string]*armWorker{},
		byModel: map[string][]*armWorker{}, nodes: map[string]*armNode{}}
}

// follow keeps the table in step with the registry until the watch ends.
func (t *armTable) follow(ctx context.Context, events <-chan discovery.Event) error {
	for e := range events {
		switch e.Kind {
		case discovery.Put:
			t.put(ctx, e.Worker)
		case discovery.Delete:
			t.remove(e.Worker.ID)
		case discovery.Invalid:
			t.log.Warn("a worker's record does not hold", "worker", e.Worker.ID, "error", e.Err)
		case discovery.Closed:
			return e.Err
		}
	}
	return nil
}

func (t *armTable) put(ctx context.Context, rec discovery.Worker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(rec.ID)
	w := &armWorker{rec: rec}
	t.workers[rec.ID] = w
	for _, m := range rec.Models {
		t.byModel[m] = append(t.byModel[m], w)
	}
	n := t.nodes[rec.Node.ID]
	if n == nil {
		dialCtx, stop := context.WithCancel(ctx)
		n = &armNode{stop: stop}
		t.nodes[rec.Node.ID] = n
		t.wg.Go(func() { t.keep(dialCtx, n, rec.Node) }) // ends with the node's last record, or ctx
	}
	n.workers++
}

func (t *armTable) remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(id)
}

func (t *armTable) removeLocked(id string) {
	w := t.workers[id]
	if w == nil {
		return
	}
	delete(t.workers, id)
	for _, m := range w.rec.Models {
		if t.byModel[m] = slices.DeleteFunc(t.byModel[m],
			func(x *armWorker) bool { return x == w }); len(t.byModel[m]) == 0 {
			delete(t.byModel, m)
		}
	}
	n := t.nodes[w.rec.Node.ID]
	if n.workers--; n.workers == 0 {
		n.stop()
		delete(t.nodes, w.rec.Node.ID)
	}
}

const (
	armDialTimeout = 5 * time.Second
	armLook        = 200 * time.Millisecond // between two looks at a connection, and two attempts to make one
)

// keep makes the connection to a process, and again when it has died; what was open on it is lost.
func (t *armTable) keep(ctx context.Context, n *armNode, node discovery.Node) {
	tick := time.NewTicker(armLook)
	defer tick.Stop()
	for {
		up := t.ref.Connected(node.ID)
		if !up {
			dialCtx, cancel := context.WithTimeout(ctx, armDialTimeout)
			err := t.ref.AddPeer(dialCtx, node)
			cancel()
			if up = err == nil; up {
				t.log.Info("connected to a worker process", "name", node.Name, "node", node.ID)
			}
			n.err.Store(&err)
		}
		n.up.Store(up)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pick chooses a worker that this request has not tried, in a process that it has not tried where there is one.
func (t *armTable) pick(model string, tried []*armWorker) (*armWorker, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	refused := &responseplane.Error{Kind: responseplane.EndRefused, Code: responseplane.CodeNoWorker}
	list := t.byModel[model]
	n := len(list)
	if n == 0 {
		refused.Text = fmt.Sprintf("no worker is known for model %q", model)
		return nil, refused
	}
	fit := func(w *armWorker) bool { return !slices.Contains(tried, w) && t.nodes[w.rec.Node.ID].up.Load() }
	fresh := func(w *armWorker) bool {
		return fit(w) && !slices.ContainsFunc(tried, func(o *armWorker) bool { return o.rec.Node.ID == w.rec.Node.ID })
	}
	start := rand.IntN(n)
	if t.router == responseplane.RouterRoundRobin {
		start = int(t.turn.Add(1) % uint64(n))
	}
	if t.router == responseplane.RouterLeastLoaded && n > 2 {
		for range 4 { // two random ones, the less loaded of them, as the plane does
			a, b := list[rand.IntN(n)], list[rand.IntN(n)]
			if b.open.Load() < a.open.Load() {
				a = b
			}
			if fresh(a) {
				return a, nil
			}
		}
	}
	for _, fits := range []func(*armWorker) bool{fresh, fit} {
		var best *armWorker
		for i := range n {
			w := list[(start+i)%n]
			if !fits(w) {
				continue
			}
			if t.router != responseplane.RouterLeastLoaded {
				return w, nil
			}
			if best == nil || w.open.Load() < best.open.Load() {
				best = w
			}
		}
		if best != nil {
			return best, nil
		}
	}
	refused.Text = fmt.Sprintf("none of %d workers can be reached", n)
	return nil, refused
}

func (t *armTable) models() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.byModel))
}

func (t *armTable) reachable() int {
	n := 0
	for _, w := range t.status() {
		if w.Reachable {
			n++
		}
	}
	return n
}

// status describes all workers, ordered by id.
func (t *armTable) status() []responseplane.WorkerStatus {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]responseplane.WorkerStatus, 0, len(t.workers))
	for _, w := range t.workers {
		n := t.nodes[w.rec.Node.ID]
		s := responseplane.WorkerStatus{ID: w.rec.ID, Models: w.rec.Models, Node: w.rec.Node.ID, Name: w.rec.Node.Name,
			Reachable: n.up.Load(),
			Plane:     w.rec.Node.Planes[0].Name, Open: w.open.Load()}
		if err := n.err.Load(); err != nil && *err != nil {
			s.Err = (*err).Error()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b responseplane.WorkerStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
