package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/program/admin"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/planemetrics"
	"github.com/laneway-ai/laneway/internal/program/planepage"
	"github.com/laneway-ai/laneway/internal/program/sdnotify"
	"github.com/laneway-ai/laneway/internal/program/tracing"
	"github.com/laneway-ai/laneway/responseplane/promplane"
	"github.com/laneway-ai/laneway/transport"
)

const (
	// withdrawTimeout bounds how long leaving the registry may take; past it the lease runs out by itself.
	withdrawTimeout = 5 * time.Second
	// ackTimeout bounds, after the last response has ended, how long its end may take to reach its frontend.
	ackTimeout = 5 * time.Second
)

// process is one worker process: its node, its engines, and the places where they are known.
type process struct {
	s       settings
	log     *slog.Logger
	metrics *metrics

	// Set by build, read only from then on.
	transports []transport.Transport
	worker     node
	tracer     *tracing.Tracer // nil = none
	engines    []*mock.Engine
	admin      *admin.Server
	rates      *planepage.Keeper

	// Set by start, used by the goroutine of run only.
	deliverer discovery.Deliverer
	registry  discovery.Registry
	services  []discovery.Service

	mu           sync.Mutex
	phase        string // why the process is not ready, "" when it is
	registration discovery.Registration

	closers []func() // run by close, the last one first
}

// run is the life of the process: until ctx ends, which begins the orderly leave, or something breaks.
func run(ctx context.Context, s settings, log *slog.Logger) error {
	p := newProcess(s, log)
	defer p.close()
	if err := p.build(ctx); err != nil {
		return err
	}
	if err := p.start(ctx); err != nil {
		if ctx.Err() != nil {
			log.Info("stopped before it was ready")
			return nil
		}
		return err
	}
	watch, err := sdnotify.Start(log, func(ctx context.Context) error { return p.admin.Probe(ctx, "/livez") })
	if err != nil {
		return err
	}
	defer watch.Close()
	watch.Ready(fmt.Sprintf("%d workers are registered", len(p.engines)))
	<-ctx.Done()
	watch.Stopping("leaving")
	p.leave()
	return nil
}

func newProcess(s settings, log *slog.Logger) *process {
	return &process{s: s, log: log, metrics: newMetrics(s.name), phase: "starting"}
}

// build makes everything that needs no peer, and opens the admin address: a process that hangs in its start can be
// looked at.
func (p *process) build(ctx context.Context) error {
	id, err := transport.NewIdentity()
	if err != nil {
		return err
	}
	if p.transports, err = p.s.plane.Transports(id, p.log); err != nil {
		return err
	}
	for _, t := range p.transports {
		p.onClose(func() { t.Close() })
	}
	p.sabotage()
	if p.worker, err = p.newNode(id); err != nil {
		return err
	}
	p.onClose(func() { p.worker.Close() })
	p.s.trace.Logger = p.log
	if p.tracer, err = tracing.New(ctx, p.s.trace); err != nil {
		return err
	}
	p.onClose(p.tracer.Close)
	for i := range p.s.workers {
		cfg := p.s.engine
		cfg.Index, cfg.Flush, cfg.Observer = i, p.worker.Flush, p.metrics
		e, err := mock.Start(cfg)
		if err != nil {
			return err
		}
		p.onClose(func() { e.Close() })
		p.engines = append(p.engines, e)
	}
	if mean, enough := p.s.held(); mean > 0 && !enough {
		p.log.Warn("what is held back is too little to make this process a holder", "hold_share", p.s.engine.HoldShare,
			"hold_delay", p.s.engine.HoldDelay,
			"adds_to_mean", mean, "needed", fmt.Sprintf("over %d inter-token latencies", holderLimit))
	}
	p.metrics.addLoad(p.engines)
	p.metrics.registry.MustRegister(promplane.New(p.worker.Stats, p.transports...),
		planemetrics.Settings(func() []planeflags.Setting { return p.s.plane.InForce(p.sockets()) }))
	if p.admin, err = admin.Start(ctx, admin.Config{Addr: p.s.adminAddr, ProfilesForAll: p.s.adminPprof,
		Metrics: p.metrics.registry, Ready: p.ready, Logger: p.log}); err != nil {
		return err
	}
	p.onClose(func() { p.admin.Close() })
	p.rates = planepage.NewKeeper(time.Now())
	p.admin.Handle("GET /debug/plane", http.HandlerFunc(p.serveDebug))
	return nil
}

// start opens the node to frontends and makes the engines known.
func (p *process) start(ctx context.Context) (err error) {
	deadline := p.s.disco.Deadline()
	if p.deliverer, err = p.s.disco.Deliverer(ctx, deadline, p.s.name, p.log); err != nil {
		return err
	}
	p.onClose(func() { p.deliverer.Close() })
	if p.registry, err = p.s.disco.Registry(ctx, deadline, p.log); err != nil {
		return err
	}
	p.onClose(func() { p.registry.Close() })
	if err := p.worker.Listen(ctx); err != nil {
		if _, ok := errors.AsType[*transport.BindError](err); ok {
			return fmt.Errorf("--bind-addr %s: %w", p.s.plane.BindAddr, err)
		}
		return fmt.Errorf("--bind-addr, --advertise-addr: %w", err)
	}
	if err := p.startUp(ctx); err != nil {
		return err
	}
	records := make([]discovery.Worker, len(p.engines))
	for i, e := range p.engines {
		records[i] = discovery.Worker{
			Schema: discovery.Schema, ID: p.workerID(i), Models: []string{p.s.model},
			Node: p.worker.Descriptor(), MaxRunning: p.s.engine.MaxNumSeqs,
		}
		t := &taker{engine: e, model: p.s.model, metrics: p.metrics, worker: records[i].ID, tracer: p.tracer}
		svc, err := p.worker.serve(ctx, p.deliverer, records[i], t.take)
		if err != nil {
			return fmt.Errorf("serve worker %s: %w", records[i].ID, err)
		}
		p.services = append(p.services, svc)
	}
	reg, err := p.registry.Register(ctx, records)
	if err != nil {
		return fmt.Errorf("register %d workers: %w", len(records), err)
	}
	p.mu.Lock()
	p.registration, p.phase = reg, ""
	p.mu.Unlock()
	p.log.Info("ready", "name", p.s.name, "workers", len(records), "first", records[0].ID, "model", p.s.model, "planes",
		p.s.plane.Planes, "admin", p.admin.Addr().String())
	return nil
}

// startUp is the time that engines of a real worker take to load their model.
func (p *process) startUp(ctx context.Context) error {
	if p.s.startup <= 0 {
		return nil
	}
	p.setPhase("loading the model")
	t := time.NewTimer(p.s.startup)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave ends the process without losing a response: frontends stop sending first, then what is open ends.
func (p *process) leave() {
	p.setPhase("leaving")
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	err := p.registration.Withdraw(ctx)
	cancel()
	if err != nil {
		p.log.Warn("could not leave the registry, the lease will run out", "error", err)
	}
	p.log.Info("left the registry", "grace", p.s.grace)
	// Requests that were routed before the frontends heard of it are still on their way. A signal's second coming ends
	// the process.
	time.Sleep(p.s.grace)

	began := time.Now()
	ctx, cancel = context.WithTimeout(context.Background(), p.s.drain)
	defer cancel()
	if err := each(p.services, func(s discovery.Service) error { return s.Drain(ctx) }); err != nil {
		p.log.Warn("requests may have been left undelivered", "error", err)
	}
	// Frontends hear on their lanes at once that nothing more is taken here; the wait is for what is open.
	planeCtx, stopWaiting := context.WithCancel(context.Background())
	defer stopWaiting()
	ended := make(chan error, 1)
	go func() { ended <- p.worker.Drain(planeCtx) }() // joined below
	if err := each(p.engines, func(e *mock.Engine) error { return e.Drain(ctx) }); err != nil {
		running, waiting := p.load()
		p.log.Warn("--drain-timeout is over, open responses end as failed", "running", running, "waiting", waiting,
			"drain_timeout", p.s.drain)
	}
	for _, e := range p.engines {
		e.Close()
	}
	limit := time.AfterFunc(ackTimeout, stopWaiting)
	defer limit.Stop()
	if err := <-ended; err != nil {
		p.log.Warn("some ends were not acknowledged", "error", err)
	}
	p.log.Info("drained", "took", time.Since(began).Round(time.Millisecond))
}

// load is what the engines of the process have open.
func (p *process) load() (running, waiting int) {
	for _, e := range p.engines {
		r, w := e.Load()
		running, waiting = running+r, waiting+w
	}
	return running, waiting
}

// ready says why the process takes no requests, nil when it does. Without the registry it still serves those frontends
// that know it, but new ones do not find it.
func (p *process) ready() error {
	p.mu.Lock()
	phase, reg := p.phase, p.registration
	p.mu.Unlock()
	if phase != "" {
		return errors.New(phase)
	}
	return reg.Err()
}

func (p *process) setPhase(phase string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase = phase
}

func (p *process) onClose(f func()) { p.closers = append(p.closers, f) }

func (p *process) close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
}

// each calls f for all items at the same time and joins the errors.
func each[T any](items []T, f func(T) error) error {
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { errs[i] = f(item) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (p *process) workerID(i int) string { return p.s.workerPrefix + "-" + strconv.Itoa(i) }
