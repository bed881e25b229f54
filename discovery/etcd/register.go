package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/laneway-ai/laneway/discovery"
)

// registration is the workers of one Register call and the lease that holds them.
type registration struct {
	r       *Registry
	records []record

	ctx    context.Context // ends when it is withdrawn or its registry closed
	cancel context.CancelFunc
	done   chan struct{} // closed when the keeper has returned

	mu    sync.Mutex
	lease clientv3.LeaseID // 0 when there is none
	err   error

	turn chan struct{} // capacity 1: who withdraws it at the moment
	gone bool          // the lease has been revoked, or was never there; owned by who has the turn
}

// record is a worker's key and value.
type record struct {
	id, key, value string
	nodeID, name   string
}

// Register implements discovery.Registry; the package comment says who holds an id. While etcd is away it tries again
// until ctx ends.
func (r *Registry) Register(ctx context.Context, workers []discovery.Worker) (discovery.Registration, error) {
	records, err := r.encode(workers)
	if err != nil {
		return nil, err
	}
	reg := &registration{r: r, records: records, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	reg.ctx, reg.cancel = context.WithCancel(r.life)

	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		reg.cancel()
		return nil, discovery.ErrClosed
	}
	r.regs[reg] = struct{}{}
	r.mu.Unlock()

	// Either end stops it: the caller's patience, or the registry's Close.
	ectx, cancel := context.WithCancel(ctx)
	defer cancel()
	release := context.AfterFunc(reg.ctx, cancel)
	defer release()
	if err := reg.first(ectx); err != nil {
		close(reg.done)
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("etcd: register: %w (last: %v)", cause, err)
		} else if r.life.Err() != nil {
			err = discovery.ErrClosed
		}
		rctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		_ = reg.Withdraw(rctx) // what could not be taken out goes with its lease
		return nil, err
	}
	go func() {
		defer close(reg.done)
		reg.keep()
	}()
	return reg, nil
}

func (r *Registry) encode(workers []discovery.Worker) ([]record, error) {
	if len(workers) == 0 {
		return nil, errors.New("etcd: register: no worker is given")
	}
	records := make([]record, 0, len(workers))
	seen := make(map[string]bool, len(workers))
	for _, w := range workers {
		data, err := w.Encode()
		if err != nil {
			return nil, fmt.Errorf("etcd: register: %w", err)
		}
		if seen[w.ID] {
			return nil, fmt.Errorf("etcd: register: worker id %q is given twice", w.ID)
		}
		seen[w.ID] = true
		records = append(records, record{id: w.ID, key: r.key(w.ID), value: string(data), nodeID: w.Node.ID,
			name: w.Node.Name})
	}
	return records, nil
}

// first puts the records in for the first time: it tries again while etcd is away, and waits once for a holder whose
// lease may be running out.
func (g *registration) first(ctx context.Context) error {
	var delay backoffDelay
	var patience time.Time
	for {
		err := g.establish(ctx, true)
		if err == nil || ctx.Err() != nil {
			return err
		}
		var conflict *ConflictError
		switch {
		case errors.As(err, &conflict):
			if patience.IsZero() {
				ttl := g.holderTTL(ctx, conflict.WorkerID)
				patience = time.Now().Add(ttl + time.Second)
				g.r.cfg.Logger.Warn("etcd: a worker id is held by another node, waiting for its lease to run out",
					"worker", conflict.WorkerID, "holder", conflict.NodeID, "holder_name", conflict.NodeName, "wait",
					ttl)
			}
			if time.Now().After(patience) {
				return err
			}
			sleep(ctx, 100*time.Millisecond)
		case passing(err):
			g.r.cfg.Logger.Warn("etcd: the workers could not be registered, trying again", "err", err)
			delay.wait(ctx)
		default:
			return err
		}
	}
}

// holderTTL is how long the lease of the worker's present holder would last without a keep-alive.
func (g *registration) holderTTL(ctx context.Context, id string) time.Duration {
	cctx, cancel := g.r.call(ctx)
	defer cancel()
	resp, err := g.r.cli.Get(cctx, g.r.key(id))
	if err != nil || len(resp.Kvs) == 0 {
		return g.r.cfg.LeaseTTL
	}
	ttl, err := g.r.cli.TimeToLive(cctx, clientv3.LeaseID(resp.Kvs[0].Lease))
	if err != nil || ttl.TTL < 0 {
		return g.r.cfg.LeaseTTL
	}
	return time.Duration(ttl.TTL) * time.Second
}

// establish makes sure that there is a lease and that all records hang on it.
func (g *registration) establish(ctx context.Context, claim bool) error {
	if g.leaseID() == 0 {
		cctx, cancel := g.r.call(ctx)
		defer cancel()
		resp, err := g.r.cli.Grant(cctx, int64(g.r.cfg.LeaseTTL/time.Second))
		if err != nil {
			return err
		}
		g.setLease(resp.ID)
	}
	err := g.put(ctx, claim)
	if leaseGone(err) {
		g.setLease(0)
	}
	return err
}

func (g *registration) leaseID() clientv3.LeaseID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lease
}

func (g *registration) setLease(id clientv3.LeaseID) {
	g.mu.Lock()
	g.lease = id
	g.mu.Unlock()
}

// Err implements discovery.Registration.
func (g *registration) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// setErr notes the present state, and logs when it turns from good to bad or back.
func (g *registration) setErr(err error) {
	g.mu.Lock()
	was := g.err
	g.err = err
	g.mu.Unlock()
	switch {
	case err != nil && was == nil:
		g.r.cfg.Logger.Warn("etcd: the registration is in danger", "workers", len(g.records), "first", g.records[0].id,
			"err", err)
	case err == nil && was != nil:
		g.r.cfg.Logger.Info("etcd: the registration is in place again", "workers", len(g.records), "first",
			g.records[0].id)
	}
}

// Withdraw implements discovery.Registration: it revokes the lease. When that fails the records go when the lease ends,
// and Withdraw may be called again.
func (g *registration) Withdraw(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-g.turn }()
	if g.gone {
		return nil
	}
	g.cancel()
	<-g.done
	if lease := g.leaseID(); lease != 0 {
		cctx, cancel := g.r.call(ctx)
		defer cancel()
		if _, err := g.r.cli.Revoke(cctx, lease); err != nil && !leaseGone(err) {
			return fmt.Errorf("etcd: the workers could not be withdrawn, their records go within %s: %w",
				g.r.cfg.LeaseTTL, err)
		}
	}
	g.gone = true
	g.setErr(nil)
	g.r.mu.Lock()
	delete(g.r.regs, g)
	g.r.mu.Unlock()
	return nil
}

// keep holds the lease and the records until the registration is withdrawn: a keep-alive three times in a lease's life,
// each with its own deadline, and a look at the records once in it.
func (g *registration) keep() {
	ttl := g.r.cfg.LeaseTTL
	every := ttl / 3
	var delay backoffDelay
	for beat := 1; ; beat++ {
		// A little early at random, so that processes that began together do not beat together.
		sleep(g.ctx, every-rand.N(every/10+1))
		for {
			if g.ctx.Err() != nil {
				return
			}
			err := g.beat(beat%3 == 0 || g.Err() != nil)
			if g.ctx.Err() != nil {
				return
			}
			g.setErr(err)
			var conflict *ConflictError
			if err == nil || errors.As(err, &conflict) {
				delay.reset() // a conflict is looked at again at the next beat
				break
			}
			delay.wait(g.ctx)
		}
	}
}

// beat keeps the lease alive, or gets a new one and puts the records back. look makes it look at the records too.
func (g *registration) beat(look bool) error {
	lease := g.leaseID()
	if lease != 0 {
		limit := min(max(g.r.cfg.LeaseTTL/3, 500*time.Millisecond), g.r.cfg.DialTimeout)
		cctx, cancel := context.WithTimeout(g.ctx, limit)
		_, err := g.r.cli.KeepAliveOnce(cctx, lease)
		cancel()
		switch {
		case leaseGone(err):
			g.setLease(0)
			g.setErr(errLeaseLost)
			lease, look = 0, true
		case err != nil:
			return fmt.Errorf("etcd: keep-alive: %w", err)
		}
	}
	if lease == 0 || look {
		return g.establish(g.ctx, false)
	}
	return nil
}
