package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/cli"
	"github.com/laneway-ai/laneway/internal/planebench"
	"github.com/laneway-ai/laneway/internal/planeflags"
	"github.com/laneway-ai/laneway/transport"
)

// planeFlags are the flags of `loadgen plane`.
type planeFlags struct {
	plane *planeflags.Flags

	deliveries, baselines                                 *[]string
	runs, frontends, processes, engines, concurrency, osl *int
	tokenBytes, requests, warmupRequests                  *int
	interval, duration, warmup, baselineInterval          *time.Duration
	maxErrorRate                                          *float64
	label, dir, profiles                                  *string
}

// addPlane declares the command `loadgen plane`: it drives the response plane between processes, without HTTP.
func addPlane(parent *cli.App) {
	app := parent.Command("plane", "drives the response plane between OS processes, without HTTP, and measures CPU per response")
	f := &planeFlags{}
	g := app.Group("Load")
	f.concurrency = g.Int("concurrency", 1024, cli.Range(1, 1_000_000).Unit("responses"), "open responses, over all frontends; a closed loop")
	app.Alias("c", "concurrency")
	f.engines = g.Int("engines", 64, cli.Range(1, 100_000).Unit("engines"), "engines, over all worker processes")
	f.processes = g.Int("worker-processes", 2, cli.Range(1, 64).Unit("processes"), "worker processes")
	f.frontends = g.Int("frontends", 2, cli.Range(1, 64).Unit("processes"), "frontend processes, which share the concurrency")
	f.interval = g.Duration("inter-token-latency", 20*time.Millisecond, cli.Range(time.Millisecond, time.Minute).OrZero("no pause"), "time between two passes of an engine; passes of different engines are spread over it")
	f.osl = g.Int("osl", 256, cli.Range(1, 1_000_000).Unit("records"), "records of a response")
	f.tokenBytes = g.Int("token-bytes", 64, cli.Range(planebench.MinTokenBytes, 1<<20).Unit("bytes"), "bytes of a record")

	g = app.Group("Runs")
	f.deliveries = g.EnumList("delivery", []string{planebench.Pull}, planebench.Deliveries(), "how responses are consumed: pull = a goroutine each, woken; sink = called by the lane's reader. Several are run alternately")
	f.baselines = g.EnumList("baseline", nil, planebench.Baselines(), "also run these bare planes over the same transports, each beside ours, and compare CPU pair by pair: a connection for each response, dialled by the worker (tcp and tls); "+
		"a write for each record on one connection; what a pass leaves as one write, without windows, cancel or failover")
	f.baselineInterval = g.Duration("baseline-interval", 0, cli.Range(0, 100*time.Millisecond).OrZero("a write for each pass"), "time between two writes of the baseline batched")
	f.runs = g.Int("runs", 1, cli.Range(1, 1000).Unit("runs"), "runs of each arm (plane and delivery), interleaved, with fresh processes")
	f.duration = g.Duration("duration", 0, cli.Any().OrZero("until --request-count have completed"), "length of the window")
	f.requests = g.Int("request-count", 2000, cli.Range(1, 1_000_000_000).Unit("responses").OrZero("until --duration has passed"), "end the window when so many responses have completed in it")
	app.Alias("n", "request-count")
	f.warmup = g.Duration("warmup-duration", 0, cli.Any().OrZero("until --warmup-request-count have ended"), "load before the window")
	f.warmupRequests = g.Int("warmup-request-count", 200, cli.Range(1, 1_000_000_000).Unit("responses").OrZero("until the first response of each slot has ended"), "end the warm-up when so many responses have ended")

	g = app.Group("Report")
	f.maxErrorRate = g.Float("max-error-rate", 0, cli.Range(0, 1), "exit 2 when a larger share of the responses fails")
	f.label = g.String("label", "", "name of the run")
	f.dir = g.String("artifact-dir", "", "where run.json (schema "+planebench.Schema+") goes; empty = runs/plane-TIME")
	f.profiles = g.String("cpuprofile-dir", "", "write a CPU profile of each process over the window; costs a little CPU itself")
	f.plane = planeflags.Register(app, planeflags.Options{Planes: []string{transport.PlaneTCP}, PlaneUsage: "planes to run, one at a time; several are run alternately"})

	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		if planebench.IsChild() {
			return planebench.Child(ctx, os.Stdin, os.Stdout, log)
		}
		return f.run(ctx, app, log)
	})
}

// loopback is where the worker processes listen unless --bind-addr says otherwise: all processes are on this host.
const loopback = "127.0.0.1:0"

func (f *planeFlags) run(ctx context.Context, app *cli.App, log *slog.Logger) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	settings := f.plane.Settings()
	if app.Source("bind-addr") == cli.FromDefault {
		settings.BindAddr = loopback
	}
	dir := *f.dir
	if dir == "" {
		dir = filepath.Join("runs", "plane-"+time.Now().Format("20060102-150405.000"))
	}
	cfg := planebench.Config{
		Planes: settings.Planes, Deliveries: *f.deliveries, Runs: *f.runs, Settings: settings,
		Load:      planebench.Load{Concurrency: *f.concurrency, Engines: *f.engines, OSL: *f.osl, TokenBytes: *f.tokenBytes, Interval: *f.interval},
		Frontends: *f.frontends, WorkerProcesses: *f.processes, Duration: *f.duration, Requests: *f.requests, Warmup: *f.warmup, WarmupRequests: *f.warmupRequests,
		Baselines: *f.baselines, BaselineInterval: *f.baselineInterval,
		ProfileDir: *f.profiles, Label: *f.label, Flags: app.Config(),
		Exe: exe, Args: []string{"plane", "--log-level=" + app.Values()["log-level"]}, Log: log,
		Progress: func(s string) { fmt.Fprintln(app.Stderr, s) },
	}
	if log.Enabled(ctx, slog.LevelDebug) {
		cfg.Stderr = app.Stderr
	}
	if slices.Contains(settings.Planes, transport.PlaneTCP) {
		log.Warn("plane tcp is neither encrypted nor authenticated; this run uses it on this host only")
	}
	r, err := planebench.Execute(ctx, cfg)
	if r == nil {
		return err
	}
	if len(r.Runs) > 0 {
		if err := errors.Join(r.Print(app.Stdout), r.Write(dir)); err != nil {
			return err
		}
		fmt.Fprintf(app.Stdout, "written to %s\n", dir)
	}
	var child *planebench.ChildError
	switch {
	case errors.As(err, &child) && !child.Setup:
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	case err != nil:
		return err
	}
	if err := r.Verdict(*f.maxErrorRate); err != nil {
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	}
	return nil
}
