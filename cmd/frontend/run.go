package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/program/admin"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/planemetrics"
	"github.com/laneway-ai/laneway/internal/program/planepage"
	"github.com/laneway-ai/laneway/internal/program/sdnotify"
	"github.com/laneway-ai/laneway/internal/program/tracing"
)

// plane is the response plane with its discovery, as this program uses it.
type plane interface {
	frontend.Backend
	// State is a view of the plane for /debug/plane.
	State() planeState
	// Failed delivers one error when the plane cannot go on; nothing otherwise.
	Failed() <-chan error
	// Close ends all of it and joins its goroutines.
	Close() error
}

// connector builds a plane; it is an argument of run so that tests can play one.
type connector func(ctx context.Context, log *slog.Logger, s settings, metrics prometheus.Registerer) (plane, error)

// otherFiles is how many files the process may need besides one for each open request: lanes, etcd, NATS, the admin
// listener, idle clients.
const otherFiles = 512

// errStarting is why a process that has just begun is not ready.
var errStarting = errors.New("the frontend is starting")

// run is the program's life: listen, connect, serve until ctx ends, drain. Open responses that had to be cut are an
// error.
func run(ctx context.Context, log *slog.Logger, s settings, connect connector) (err error) {
	also := func(close func() error) { err = errors.Join(err, close()) }

	if s.maxOpen > 0 {
		if err := cli.NeedFiles(s.maxOpen+otherFiles, fmt.Sprintf("--max-open-requests %d", s.maxOpen)); err != nil {
			return err
		}
	}
	// Both ports first: a port in use should not cost a connection to etcd.
	l, err := cli.Listen(ctx, "http-addr", s.httpAddr)
	if err != nil {
		return err
	}
	defer l.Close() // Serve closes it too; that is fine
	metrics := newRegistry(s.name)
	var ready atomic.Pointer[func() error]
	setReady := func(f func() error) { ready.Store(&f) }
	setReady(func() error { return errStarting })
	adm, err := admin.Start(ctx, admin.Config{Addr: s.adminAddr, ProfilesForAll: s.adminPprof, Metrics: metrics,
		Ready: func() error { return (*ready.Load())() }, Logger: log})
	if err != nil {
		return err
	}
	defer also(adm.Close)

	s.trace.Logger = log
	tracer, err := tracing.New(ctx, s.trace)
	if err != nil {
		return err
	}
	defer tracer.Close()
	p, err := connect(ctx, log, s, metrics)
	if err != nil {
		return err
	}
	defer also(p.Close)
	inForce := func() []planeflags.Setting { return s.plane.InForce(p.State().Sockets) }
	if err := metrics.Register(planemetrics.Settings(inForce)); err != nil {
		return fmt.Errorf("register the metrics of settings: %w", err)
	}
	cfg := s.httpConfig(p, log, metrics)
	cfg.Tracer = tracer
	if err := s.http.apply(&cfg, log); err != nil {
		return err
	}
	front, err := frontend.New(cfg)
	if errors.Is(err, frontend.ErrNoRing) {
		return &cli.FlagError{Flag: "out-path", Where: "--out-path", Value: s.outPath,
			Err: fmt.Errorf("%w; --out-path %s uses it only where it can", err, frontend.OutAuto)}
	}
	if err != nil {
		return err
	}
	served := make(chan struct{})
	var serveErr error                                       // after served
	go func() { serveErr = front.Serve(l); close(served) }() // ends with Drain or Close
	defer also(func() error {
		err := front.Close()
		<-served
		return err
	})
	(&debug{s: s, plane: p, front: front, rates: planepage.NewKeeper(time.Now())}).register(adm)
	setReady(front.Ready)
	watch, err := sdnotify.Start(log, func(ctx context.Context) error { return adm.Probe(ctx, "/livez") })
	if err != nil {
		return err
	}
	defer also(watch.Close)
	watch.Ready("serving on " + l.Addr().String())
	log.Info("serving", "http", l.Addr().String(), "admin", adm.Addr().String(), "name", s.name, "namespace",
		s.disco.Namespace, "planes", s.plane.Planes)
	logOutPath(log, front)

	select {
	case <-ctx.Done():
	case <-served:
		return serveErr
	case err := <-p.Failed():
		return err
	}
	setReady(func() error { return errors.New("the frontend is shutting down") })
	watch.Stopping("draining")
	return drain(log, s, p, front)
}

// drain ends the service without losing a token, as far as the times allow.
func drain(log *slog.Logger, s settings, p plane, front *frontend.Server) error {
	log.Info("draining", "open_requests", front.Open(), "grace", s.drainGrace, "timeout", s.drainTimeout)
	if s.drainGrace > 0 {
		select {
		case <-time.After(s.drainGrace):
		case err := <-p.Failed():
			log.Error("the plane failed while draining", "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.drainTimeout)
	defer cancel()
	cut, err := front.Drain(ctx)
	if cut > 0 {
		err = errors.Join(err, fmt.Errorf("%d open responses did not end within --drain-timeout %v and were cut", cut,
			s.drainTimeout))
	}
	return err
}

// logOutPath says how tokens get to the clients.
func logOutPath(log *slog.Logger, front *frontend.Server) {
	path, why := front.OutPath()
	attrs := []any{"path", string(path)}
	if why != nil {
		attrs = append(attrs, "no_io_uring", why)
	}
	log.Info("out path", attrs...)
}

func (s settings) httpConfig(p plane, log *slog.Logger, metrics prometheus.Registerer) frontend.Config {
	c := frontend.Config{
		Backend: p, Logger: log, Metrics: metrics,
		MaxOpenRequests:   s.maxOpen,
		Files:             cli.FileLimit,
		KeepAlive:         s.sseKeepAlive,
		FirstTokenTimeout: s.firstToken, InactivityTimeout: s.inactivity,
		StopOnDisconnect: s.stopOnDisconnect,
		OverloadStatus:   s.overloadStatus,
		OutPath:          frontend.OutPath(s.outPath),
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = -1
	}
	return c
}
