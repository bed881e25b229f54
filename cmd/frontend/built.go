package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/responseplane/promplane"
	"github.com/laneway-ai/laneway/transport"
)

// built is what a plane of either kind stands on: its transports, who the workers are, how requests reach them, how it
// is taken down again, and how it fails.
type built struct {
	identity   *transport.Identity
	transports []transport.Transport
	registry   discovery.Registry
	deliverer  discovery.Deliverer
	failed     chan error
	undo       []func() error // in the order of construction
}

func newBuilt() built { return built{failed: make(chan error, 1)} }

// base builds all that lies under the plane itself. What it built before an error, Close takes down.
func (b *built) base(ctx context.Context, log *slog.Logger, s settings) (err error) {
	if b.identity, err = transport.NewIdentity(); err != nil {
		return err
	}
	if b.transports, err = s.plane.Transports(b.identity, log); err != nil {
		return err
	}
	for _, t := range b.transports {
		b.undo = append(b.undo, t.Close)
	}
	deadline := s.disco.Deadline()
	if b.registry, err = s.disco.Registry(ctx, deadline, log); err != nil {
		return err
	}
	b.undo = append(b.undo, b.registry.Close)
	if b.deliverer, err = s.disco.Deliverer(ctx, deadline, s.name, log); err != nil {
		return err
	}
	b.undo = append(b.undo, b.deliverer.Close)
	return nil
}

// export registers the plane's metrics.
func (b *built) export(metrics prometheus.Registerer, stats func() responseplane.Stats,
	retried func() map[string]uint64) error {
	if err := metrics.Register(promplane.New(stats, b.transports...)); err != nil {
		return fmt.Errorf("register the plane's metrics: %w", err)
	}
	if err := metrics.Register(retries{retried}); err != nil {
		return fmt.Errorf("register the metrics of retries: %w", err)
	}
	return nil
}

// fail reports the first reason to give up.
func (b *built) fail(err error) {
	select {
	case b.failed <- err:
	default:
	}
}

func (b *built) Failed() <-chan error { return b.failed }

// Close takes everything down, the last built first.
func (b *built) Close() error {
	var errs []error
	for i := len(b.undo) - 1; i >= 0; i-- {
		errs = append(errs, b.undo[i]())
	}
	b.undo = nil
	return errors.Join(errs...)
}

func (b *built) sockets() []transport.SocketInfo {
	var all []transport.SocketInfo
	for _, t := range b.transports {
		all = append(all, t.Sockets()...)
	}
	return all
}
