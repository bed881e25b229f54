package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/lab/refplane"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/transport"
)

// planeFlags are the flags of `loadgen plane`.
type planeFlags struct {
	plane *planeflags.Flags

	common *planebench.Command

	deliveries, baselines                       *[]string
	runs, concurrency, requests, warmupRequests *int
	duration, warmup, baselineInterval          *time.Duration
	maxErrorRate                                *float64
}

// addPlane declares the command `loadgen plane`: it drives the response plane between processes, without HTTP.
func addPlane(parent *cli.App) {
	app := parent.Command("plane",
		"drives the response plane between OS processes, without HTTP, and measures CPU per response")
	f := &planeFlags{}
	g := app.Group("Load")
	f.concurrency = g.Int("concurrency", 1024, cli.Range(1, 1_000_000).Unit("responses"),
		"open responses, over all frontends; a closed loop")
	app.Alias("c", "concurrency")
	f.common = planebench.Declare(app, g, 64, 2, "concurrency")

	g = app.Group("Runs")
	f.deliveries = g.EnumList("delivery", []string{planebench.Pull}, planebench.Deliveries(),
		"how responses are consumed: pull = a goroutine each, woken; sink = called by the lane's reader. Several are "+
			"run alternately")
	f.baselines = g.EnumList("baseline", nil, planebench.Baselines(),
		"also run these bare planes over the same transports, each beside ours, and compare CPU pair by pair: a "+
			"connection for each response, dialled by the worker (tcp and tls); "+
			"a write for each record on one connection; what a pass leaves as one write, without windows, cancel or "+
			"failover")
	f.baselineInterval = g.Duration("baseline-interval", 0,
		cli.Range(0, 100*time.Millisecond).OrZero("a write for each pass"),
		"time between two writes of the baseline batched")
	f.runs = g.Int("runs", 1, cli.Range(1, 1000).Unit("runs"),
		"runs of each arm (plane and delivery), interleaved, with fresh processes")
	f.duration = g.Duration("duration", 0, cli.Any().OrZero("until --request-count have completed"),
		"length of the window")
	f.requests = g.Int("request-count", 2000,
		cli.Range(1, 1_000_000_000).Unit("responses").OrZero("until --duration has passed"),
		"end the window when so many responses have completed in it")
	app.Alias("n", "request-count")
	f.warmup = g.Duration("warmup-duration", 0, cli.Any().OrZero("until --warmup-request-count have ended"),
		"load before the window")
	f.warmupRequests = g.Int("warmup-request-count", 200,
		cli.Range(1, 1_000_000_000).Unit("responses").OrZero("until the first response of each slot has ended"),
		"end the warm-up when so many responses have ended")

	g = app.Group("Report")
	f.maxErrorRate = g.Float("max-error-rate", 0, cli.Range(0, 1), "exit 2 when a larger share of the responses fails")
	f.common.DeclareReport(g, "plane")
	f.plane = planeflags.Register(app, planeflags.Options{Planes: []string{transport.PlaneTCP},
		PlaneUsage: "planes to run, one at a time; several are run alternately"})

	app.CheckLast(func() error {
		cfg, err := f.config(context.Background(), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return errors.Join(cfg.Validate(), f.checkInterval())
	})
	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		if planebench.IsChild() {
			return planebench.Child(ctx, os.Stdin, os.Stdout, log)
		}
		return f.run(ctx, log)
	})
}

// checkInterval refuses an interval that nothing keeps.
func (f *planeFlags) checkInterval() error {
	if *f.baselineInterval > 0 && !slices.Contains(*f.baselines, string(refplane.Batched)) {
		return fmt.Errorf("--baseline-interval %s is of the baseline %s, which is not run: add --baseline %s",
			*f.baselineInterval, refplane.Batched, refplane.Batched)
	}
	return nil
}

// config is what the flags ask for.
func (f *planeFlags) config(ctx context.Context, log *slog.Logger) (planebench.Config, error) {
	cfg, err := f.common.Config(ctx, log, f.plane.Settings(), *f.concurrency, "plane")
	if err != nil {
		return cfg, err
	}
	cfg.Deliveries, cfg.Runs, cfg.Baselines, cfg.BaselineInterval = *f.deliveries, *f.runs, *f.baselines,
		*f.baselineInterval
	cfg.Duration, cfg.Requests, cfg.Warmup, cfg.WarmupRequests = *f.duration, *f.requests, *f.warmup, *f.warmupRequests
	return cfg, nil
}

func (f *planeFlags) run(ctx context.Context, log *slog.Logger) error {
	cfg, err := f.config(ctx, log)
	if err != nil {
		return err
	}
	if slices.Contains(cfg.Planes, transport.PlaneTCP) {
		log.Warn("plane tcp is neither encrypted nor authenticated; this run uses it on this host only")
	}
	return f.common.Run(ctx, cfg, "plane", *f.maxErrorRate)
}
