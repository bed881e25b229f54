package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/httpfront"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/responseplane/promplane"
	"github.com/laneway-ai/laneway/transport"
)

// livePlane is the real plane: etcd, NATS, transports and the response plane's frontend.
type livePlane struct {
	built
	planeBackend
	frontend *responseplane.Frontend
}

// connect builds the plane. What it built before an error it takes down again.
func connect(ctx context.Context, log *slog.Logger, s settings, metrics prometheus.Registerer) (_ plane, err error) {
	if arm, ok := s.plane.Arm(); ok {
		return connectArm(ctx, log, s, metrics, arm)
	}
	p := &livePlane{built: newBuilt()}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	identity, err := transport.NewIdentity()
	if err != nil {
		return nil, err
	}
	if p.transports, err = s.plane.Transports(identity, log); err != nil {
		return nil, err
	}
	for _, t := range p.transports {
		p.undo = append(p.undo, t.Close)
	}
	deadline := s.disco.Deadline()
	registry, err := s.disco.Registry(ctx, deadline, log)
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, registry.Close)
	deliverer, err := s.disco.Deliverer(ctx, deadline, s.name, log)
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, deliverer.Close)
	if p.frontend, err = responseplane.NewFrontend(s.frontendConfig(identity, p.transports, deliverer, log)); err != nil {
		return nil, err
	}
	p.planeBackend = planeBackend{frontend: p.frontend, timeout: s.requestTimeout}
	p.undo = append(p.undo, p.frontend.Close)
	if err := metrics.Register(promplane.New(p.frontend.Stats, p.transports...)); err != nil {
		return nil, fmt.Errorf("register the plane's metrics: %w", err)
	}
	if err := metrics.Register(retries{p.frontend.Retries}); err != nil {
		return nil, fmt.Errorf("register the metrics of retries: %w", err)
	}
	p.follow(&planeCheck{Registry: registry, planes: s.plane.Planes, failed: p.fail, grace: shareGrace})
	return p, nil
}

// follow keeps the frontend in step with the registry until Close.
func (p *livePlane) follow(registry *planeCheck) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.frontend.Follow(ctx, registry); err != nil && ctx.Err() == nil {
			p.fail(fmt.Errorf("the registry of workers cannot be followed: %w", err))
		}
	}()
	p.undo = append(p.undo, func() error {
		stop()
		<-done
		registry.watches.Wait()
		return nil
	})
}

func (p *livePlane) State() planeState {
	return planeState{Workers: p.frontend.Workers(), Stats: p.frontend.Stats(), Sockets: p.sockets()}
}

func (s settings) frontendConfig(id *transport.Identity, transports []transport.Transport, d discovery.Deliverer, log *slog.Logger) responseplane.FrontendConfig {
	c := s.plane.Frontend(id, transports, log)
	c.Name, c.Deliverer, c.MaxBufferedBytes = s.name, d, s.maxBuffered
	c.Router, c.RetryLimit = responseplane.Router(s.router), s.retryLimit
	if c.RetryLimit == 0 { // the flag's never; the config's 0 is its default
		c.RetryLimit = -1
	}
	return c
}

var _ httpfront.Backend = (*livePlane)(nil)
