package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/frontend/planebackend"
	"github.com/laneway-ai/laneway/internal/lab/refplane"
	"github.com/laneway-ai/laneway/responseplane"
)

// connectArm builds a reference arm in the place of the plane: the same registry, deliverer, transports and metrics,
// another way for the tokens.
func connectArm(ctx context.Context, log *slog.Logger, s settings, metrics prometheus.Registerer,
	arm refplane.Arm) (_ plane, err error) {
	p := &armPlane{built: newBuilt(), log: log, timeout: s.requestTimeout, retryLimit: s.retryLimit}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := p.base(ctx, log, s); err != nil {
		return nil, err
	}
	if p.ref, err = refplane.NewFrontend(s.plane.Reference(arm, p.identity, p.transports[0], s.name, log)); err != nil {
		return nil, err
	}
	p.undo = append(p.undo, p.ref.Close)
	if err := p.export(metrics, p.ref.Stats, p.retries.snapshot); err != nil {
		return nil, err
	}
	p.table = newArmTable(responseplane.Router(s.router), p.ref, log)
	p.clock = newArmClock()
	p.undo = append(p.undo, p.clock.close)
	check := &planeCheck{Registry: p.registry, planes: s.plane.Planes, failed: p.fail, grace: shareGrace}
	watchCtx, stop := context.WithCancel(context.Background())
	events, err := check.Watch(watchCtx)
	if err != nil {
		stop()
		return nil, fmt.Errorf("the registry of workers cannot be followed: %w", err)
	}
	p.table.wg.Go(func() { // ends with the watch
		if err := p.table.follow(watchCtx, events); err != nil && watchCtx.Err() == nil {
			p.fail(fmt.Errorf("the registry of workers cannot be followed: %w", err))
		}
	})
	p.undo = append(p.undo, func() error {
		stop()
		p.table.wg.Wait()
		check.watches.Wait()
		return nil
	})
	log.Warn("a reference arm carries the tokens, for comparison: no windows, no cancel, no failover", "arm", arm.Name)
	return p, nil
}

// armPlane is a plane whose tokens a reference arm carries. It keeps nothing about single requests, so it is no
// inspector.
type armPlane struct {
	built
	ref        *refplane.Frontend
	table      *armTable
	clock      *armClock
	retries    armRetries
	log        *slog.Logger
	timeout    time.Duration // of a whole request, 0 = none
	retryLimit int
}

var _ plane = (*armPlane)(nil)

func (p *armPlane) Models() []string { return p.table.models() }

func (p *armPlane) Ready() error {
	if p.table.reachable() == 0 {
		return errors.New("no worker can be reached")
	}
	return nil
}

func (p *armPlane) State() planeState {
	return planeState{Workers: p.table.status(), Stats: p.ref.Stats(), Sockets: p.sockets()}
}

// Open implements frontend.Backend: like the plane's own, a worker that refuses is not the end of a request, as often
// as --retry-limit says.
func (p *armPlane) Open(ctx context.Context, c frontend.Call) (frontend.Stream, error) {
	var deadline time.Time
	if p.timeout > 0 {
		deadline = time.Now().Add(p.timeout)
	}
	var tried []*armWorker
	for attempt := 0; ; attempt++ {
		w, err := p.table.pick(c.Model, tried)
		if err != nil {
			return nil, planebackend.EndError(err)
		}
		st, err := p.attempt(ctx, w, c, deadline)
		if err == nil {
			st.retried = attempt
			return st, nil
		}
		e, ok := errors.AsType[*responseplane.Error](err)
		if !ok || ctx.Err() != nil || !e.Retryable() || attempt >= p.retryLimit {
			return nil, planebackend.EndError(err)
		}
		p.retries.add(e.Code.String())
		tried = append(tried, w)
	}
}

// ackTimeout is how long a worker may take to acknowledge a request, as on the plane.
const ackTimeout = 2 * time.Second

// attempt is one stream at one worker.
func (p *armPlane) attempt(ctx context.Context, w *armWorker, c frontend.Call, deadline time.Time) (*armStream, error) {
	r, err := p.ref.Mint(w.rec.Node.ID)
	if err != nil {
		return nil, err
	}
	w.open.Add(1)
	st := &armStream{p: p, r: r, w: w}
	st.watch = p.clock.add(r, c.FirstRecordTimeout, c.InactivityTimeout, deadline)
	if err := p.deliver(ctx, w, r, c); err != nil {
		_ = st.Close() // only gives it back
		return nil, err
	}
	if err := r.Wait(ctx); err != nil && !errors.Is(err, io.EOF) {
		_ = st.Close()
		return nil, named(err, w.rec.ID)
	}
	return st, nil
}

// deliver hands the request over and takes the acknowledgement.
func (p *armPlane) deliver(ctx context.Context, w *armWorker, r *refplane.Response, c frontend.Call) error {
	ackCtx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	reply, err := p.deliverer.Deliver(ackCtx, w.rec.ID, discovery.Request{ID: c.ID, Terms: r.Terms(),
		Payload: c.Payload})
	refused := &responseplane.Error{Kind: responseplane.EndRefused, Worker: w.rec.ID, Text: reply.Reason}
	var size *discovery.SizeError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &size):
		refused.Code, refused.Text = responseplane.CodeTooLarge, err.Error()
	case err != nil:
		refused.Code, refused.Text = responseplane.CodeNoWorker, err.Error()
	case reply.Answer == discovery.Accepted:
		return nil
	case reply.Answer == discovery.Busy:
		refused.Code = responseplane.CodeBusy
	case reply.Answer == discovery.Draining:
		refused.Code = responseplane.CodeDraining
	case reply.Answer == discovery.Stale:
		refused.Code = responseplane.CodeNoWorker
	case reply.Answer == discovery.Unsupported:
		refused.Code = responseplane.CodeUnsupported
	default:
		refused.Code = responseplane.CodeBadRequest
	}
	return refused
}

// named puts the worker's id into an error of a response; the arm knows processes only.
func named(err error, worker string) error {
	if e, ok := errors.AsType[*responseplane.Error](err); ok && e.Worker == "" {
		with := *e
		with.Worker = worker
		return &with
	}
	return err
}

// armRetries count attempts that were made again, by the code of the refusal.
type armRetries struct {
	mu     sync.Mutex
	counts map[string]uint64
}

func (r *armRetries) add(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]uint64{}
	}
	r.counts[reason]++
}

func (r *armRetries) snapshot() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}
