package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/frontend/planebackend"
	"github.com/laneway-ai/laneway/responseplane"
)

// livePlane is the real plane: etcd, NATS, transports and the response plane's frontend.
type livePlane struct {
	built
	planebackend.Backend
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
	if err := p.base(ctx, log, s); err != nil {
		return nil, err
	}
	if p.frontend, err = responseplane.NewFrontend(s.frontendConfig(p.built, log)); err != nil {
		return nil, err
	}
	p.Backend = planebackend.Backend{Frontend: p.frontend, Timeout: s.requestTimeout}
	p.undo = append(p.undo, p.frontend.Close)
	if err := p.export(metrics, p.frontend.Stats, p.frontend.Retries); err != nil {
		return nil, err
	}
	p.follow(&planeCheck{Registry: p.registry, planes: s.plane.Planes, failed: p.fail, grace: shareGrace})
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

func (s settings) frontendConfig(b built, log *slog.Logger) responseplane.FrontendConfig {
	c := s.plane.Frontend(b.identity, b.transports, log)
	c.Name, c.Deliverer, c.MaxBufferedBytes = s.name, b.deliverer, s.maxBuffered
	c.Router, c.RetryLimit = responseplane.Router(s.router), s.retryLimit
	if c.RetryLimit == 0 { // the flag's never; the config's 0 is its default
		c.RetryLimit = -1
	}
	return c
}

var _ frontend.Backend = (*livePlane)(nil)
