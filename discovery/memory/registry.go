package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/laneway-ai/laneway/discovery"
)

var _ discovery.Registry = (*Registry)(nil)

// Registry is one process's discovery.Registry. Methods may be called concurrently.
type Registry struct {
	hub       *Hub
	namespace string
	life      context.Context
	end       context.CancelFunc

	mu     sync.Mutex
	closed bool
	regs   map[*registration]bool
	wg     sync.WaitGroup // watches
}

// Registry returns the registry of one more process.
func (h *Hub) Registry(namespace string) (*Registry, error) {
	if err := checkNamespace(namespace); err != nil {
		return nil, err
	}
	r := &Registry{hub: h, namespace: namespace, regs: make(map[*registration]bool)}
	r.life, r.end = context.WithCancel(context.Background())
	return r, nil
}

// registration is the workers of one Register call.
type registration struct {
	r   *Registry
	ids []string
}

// Register implements discovery.Registry. A worker id that another node holds is taken over, as there is no way for a
// process of a hub to die without Close or Crash.
func (r *Registry) Register(ctx context.Context, workers []discovery.Worker) (discovery.Registration, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if len(workers) == 0 {
		return nil, errors.New("memory: register: no worker is given")
	}
	reg := &registration{r: r}
	data := make(map[string][]byte, len(workers))
	for _, w := range workers {
		d, err := w.Encode()
		if err != nil {
			return nil, fmt.Errorf("memory: register: %w", err)
		}
		if _, twice := data[w.ID]; twice {
			return nil, fmt.Errorf("memory: register: worker id %q is given twice", w.ID)
		}
		data[w.ID] = d
		reg.ids = append(reg.ids, w.ID)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, discovery.ErrClosed
	}
	r.regs[reg] = true
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	for _, id := range reg.ids {
		r.hub.put(r.namespace, id, entry{data: data[id], owner: reg})
	}
	return reg, nil
}

// Withdraw implements discovery.Registration.
func (g *registration) Withdraw(context.Context) error {
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	g.remove()
	return nil
}

// remove takes out what is still this registration's. g.r.mu is held.
func (g *registration) remove() {
	delete(g.r.regs, g)
	h := g.r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range g.ids {
		if e, ok := h.records[g.r.namespace][id]; ok && e.owner == g {
			h.delete(g.r.namespace, id)
		}
	}
	g.ids = nil
}

// Err implements discovery.Registration; memory does not fail.
func (g *registration) Err() error { return nil }

// Watch implements discovery.Registry.
func (r *Registry) Watch(ctx context.Context) (<-chan discovery.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, discovery.ErrClosed
	}
	w := r.hub.watch(r.namespace)
	r.wg.Go(func() {
		reason := discovery.ErrClosed
		select {
		case <-ctx.Done():
			reason = context.Cause(ctx)
		case <-r.life.Done():
		}
		r.hub.unwatch(r.namespace, w)
		w.feed.Close(reason)
	})
	return w.feed.Events(), nil
}

// Close implements discovery.Registry. It never fails.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	for reg := range r.regs {
		reg.remove()
	}
	r.mu.Unlock()
	r.end()
	r.wg.Wait()
	return nil
}

// Crash ends the registry as a killed process would; a hub's leases run out at once, so this is Close under another
// name, for suites that need one.
func (r *Registry) Crash() { _ = r.Close() }
