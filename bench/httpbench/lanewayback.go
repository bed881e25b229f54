package httpbench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/memory"
	"github.com/laneway-ai/laneway/internal/frontend/planebackend"
	"github.com/laneway-ai/laneway/responseplane"
)

// lanewayBackend is Laneway as cmd/frontend has it, with a registry in memory and the request path over TCP.
type lanewayBackend struct {
	planebackend.Backend
	path     *pathClient
	registry *memory.Registry
	stop     context.CancelFunc
	wg       sync.WaitGroup
	followed error
}

// namespace of the registry in memory.
const namespace = "bench"

// newLaneway connects to the worker processes.
func newLaneway(ctx context.Context, c *child) (_ *lanewayBackend, err error) {
	b := &lanewayBackend{path: &pathClient{}, stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	var workers []discovery.Worker
	for i, w := range c.cfg.Workers {
		if w.Descriptor == nil {
			return nil, fmt.Errorf("worker process %d has not said where it listens", i)
		}
		workers = append(workers, discovery.Worker{ID: workerID(i), Models: []string{model}, Node: *w.Descriptor})
		if err := b.path.connect(ctx, workerID(i), w.Address); err != nil {
			return nil, err
		}
	}
	cfg := c.cfg.Settings.Frontend(c.id, c.transports, c.log)
	// the other arms take turns too
	cfg.Name, cfg.Deliverer, cfg.Router = roleFrontend, b.path, responseplane.RouterRoundRobin
	if b.Frontend, err = responseplane.NewFrontend(cfg); err != nil {
		return nil, err
	}
	hub, err := memory.New(memory.Config{})
	if err != nil {
		return nil, err
	}
	if b.registry, err = hub.Registry(namespace); err != nil {
		return nil, err
	}
	if _, err = b.registry.Register(ctx, workers); err != nil {
		return nil, err
	}
	follow, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.wg.Go(func() { b.followed = b.Frontend.Follow(follow, b.registry) }) // ends with stop
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, reachable := b.Frontend.Counts(); reachable == len(workers) {
			return b, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("not every worker process could be reached: %w", context.Cause(ctx))
		}
	}
}

// planes are the records by plane: the proof of which one carried them.
func (b *lanewayBackend) planes() map[string]uint64 {
	out := map[string]uint64{}
	for name, p := range b.Frontend.Stats().Planes {
		out[name] = p.RecordsIn
	}
	return out
}

// Close takes everything down.
func (b *lanewayBackend) Close() error {
	b.stop()
	b.wg.Wait()
	var errs []error
	if b.followed != nil && !errors.Is(b.followed, context.Canceled) {
		errs = append(errs, b.followed)
	}
	if b.Frontend != nil {
		errs = append(errs, b.Frontend.Close())
	}
	if b.registry != nil {
		errs = append(errs, b.registry.Close())
	}
	return errors.Join(append(errs, b.path.Close())...)
}
