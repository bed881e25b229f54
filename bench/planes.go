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

	"github.com/laneway-ai/laneway/bench/peers"
	"github.com/laneway-ai/laneway/internal/cli"
	"github.com/laneway-ai/laneway/internal/planebench"
	"github.com/laneway-ai/laneway/internal/planeflags"
	"github.com/laneway-ai/laneway/transport"
)

// peerFlags are the flags of the program itself.
type peerFlags struct {
	plane *planeflags.Flags

	peers, deliveries, baselines                       *[]string
	pairs, frontends, processes, engines, streams, osl *int
	tokenBytes                                         *int
	interval, duration, warmup                         *time.Duration
	floor, label, dir, profiles                        *string
}

// known are the peers that a child may be told to run.
var known = peers.All

func peerNames() (names []string) {
	for _, p := range known() {
		names = append(names, p.Name)
	}
	return names
}

// defaultFloor is the bare connection whose reader delivers.
const defaultFloor = "bare-tcp-sink"

// addPeers declares the program's own flags.
func addPeers(app *cli.App) cli.Func {
	f := &peerFlags{}
	g := app.Group("Load")
	f.streams = g.Int("streams", 1024, cli.Range(1, 60_000).Unit("responses"), "open responses, over all frontends; a closed loop")
	f.engines = g.Int("engines", 8, cli.Range(1, 100_000).Unit("engines"), "engines, over all worker processes")
	f.processes = g.Int("worker-processes", 2, cli.Range(1, 64).Unit("processes"), "worker processes")
	f.frontends = g.Int("frontends", 1, cli.Range(1, 64).Unit("processes"), "frontend processes, which share the streams")
	f.interval = g.Duration("inter-token-latency", 20*time.Millisecond, cli.Range(time.Millisecond, time.Minute).OrZero("no pause"), "time between two passes of an engine; passes of different engines are spread over it")
	f.osl = g.Int("osl", 256, cli.Range(1, 1_000_000).Unit("records"), "records of a response")
	f.tokenBytes = g.Int("token-bytes", 64, cli.Range(planebench.MinTokenBytes, 1<<20).Unit("bytes"), "bytes of a record")

	g = app.Group("Runs")
	f.peers = g.EnumList("peer", peers.Names(), peerNames(), "what is run beside Laneway")
	f.deliveries = g.EnumList("delivery", planebench.Deliveries(), planebench.Deliveries(), "how Laneway's and the bare connection's responses are consumed: pull = a goroutine each, woken; sink = called by the reader. The other peers are pulled")
	f.baselines = g.EnumList("baseline", nil, planebench.Baselines(), "also run the bare planes of `loadgen plane`, over each plane and delivery")
	f.pairs = g.Int("pairs", 10, cli.Range(1, 1000).Unit("repetitions"), "repetitions; each runs every arm once, with fresh processes, every other one in reverse order")
	f.duration = g.Duration("duration", 3*time.Second, cli.Range(100*time.Millisecond, time.Hour), "length of the window in which a run is measured")
	f.warmup = g.Duration("warmup-duration", 2*time.Second, cli.Range(time.Millisecond, time.Hour), "load before the window")
	f.floor = g.String("floor", defaultFloor, "arm that every other one is compared with, pair by pair; an arm is NAME-DELIVERY")

	g = app.Group("Report")
	f.label = g.String("label", "", "name of the run")
	f.dir = g.String("artifact-dir", "", "where run.json (schema "+planebench.Schema+") goes; empty = runs/bench-TIME")
	f.profiles = g.String("cpuprofile-dir", "", "write a CPU profile of each process over the window; costs a little CPU itself")
	f.plane = planeflags.Register(app, planeflags.Options{Planes: []string{transport.PlaneTCP, transport.PlaneQUIC}, PlaneUsage: "planes of Laneway to run"})

	return func(ctx context.Context, log *slog.Logger) error {
		if planebench.IsChild() {
			return planebench.Child(ctx, os.Stdin, os.Stdout, log, known()...)
		}
		return f.run(ctx, app, log)
	}
}

// loopback is where the worker processes listen unless --bind-addr says otherwise: all processes are on this host.
const loopback = "127.0.0.1:0"

// spareFiles is how many files a process needs beside one for each response.
const spareFiles = 64

func (f *peerFlags) run(ctx context.Context, app *cli.App, log *slog.Logger) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	settings := f.plane.Settings()
	if app.Source("bind-addr") == cli.FromDefault {
		settings.BindAddr = loopback
	}
	cfg := planebench.Config{
		Planes: settings.Planes, Deliveries: *f.deliveries, Runs: *f.pairs, Settings: settings, Peers: f.picked(),
		Load:      planebench.Load{Concurrency: *f.streams, Engines: *f.engines, OSL: *f.osl, TokenBytes: *f.tokenBytes, Interval: *f.interval},
		Frontends: *f.frontends, WorkerProcesses: *f.processes, Duration: *f.duration, Warmup: *f.warmup, Baselines: *f.baselines,
		ProfileDir: *f.profiles, Label: *f.label, Flags: app.Config(),
		Exe: exe, Args: []string{"--log-level=" + app.Values()["log-level"]}, Log: log,
		Progress: func(s string) { fmt.Fprintln(app.Stderr, s) },
	}
	if log.Enabled(ctx, slog.LevelDebug) {
		cfg.Stderr = app.Stderr
	}
	arms := cfg.Arms()
	if !slices.Contains(arms, *f.floor) {
		return &cli.FlagError{Flag: "floor", Where: "--floor", Value: *f.floor, Err: fmt.Errorf("is not run: use one of %v", arms)}
	}
	cfg.Compare = compare(arms, *f.floor)
	if err := cli.NeedFiles(*f.streams+spareFiles, fmt.Sprintf("--streams %d with a connection for each", *f.streams)); err != nil {
		return err
	}
	dir := *f.dir
	if dir == "" {
		dir = filepath.Join("runs", "bench-"+time.Now().Format("20060102-150405.000"))
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
	if err := r.Verdict(0); err != nil {
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	}
	return nil
}

// picked are the peers that are run, each in those of its deliveries that are asked for: one that can only be pulled is pulled.
func (f *peerFlags) picked() (out []planebench.Peer) {
	for _, p := range known() {
		if !slices.Contains(*f.peers, p.Name) {
			continue
		}
		if len(p.Deliveries) > 1 {
			p.Deliveries = *f.deliveries
		}
		out = append(out, p)
	}
	return out
}
