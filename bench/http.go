package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/laneway-ai/laneway/bench/httpbench"
	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/transport"
)

// kindHTTP stands in the names of run directories.
const kindHTTP = "bench-http"

// httpFlags are the flags of `bench http`.
type httpFlags struct {
	plane *planeflags.Flags

	arms, streams                                   *[]string
	equal                                           *bool
	engines, processes, osl, isl, tokenBytes, pairs *int
	interval, first, duration, warmup               *time.Duration
	outPath, label, dir, profiles                   *string
}

// addHTTP declares `bench http`.
func addHTTP(parent *cli.App) {
	app := parent.Command("http",
		"measures planes end to end: one HTTP frontend, its plane replaced, with thousands of open responses")
	f := &httpFlags{}
	names := httpbench.Names(httpbench.Arms())
	g := app.Group("Load")
	f.streams = g.List("streams", []string{"8192"}, "open responses, a closed loop; of several numbers each is run")
	f.equal = g.Bool("equal-rate", true,
		"of several --streams, the smaller ones have shorter --inter-token-latency, so that all make as many tokens "+
			"a second")
	f.interval = g.Duration("inter-token-latency", 400*time.Millisecond, cli.Range(time.Millisecond, 10*time.Second),
		"time between two passes of an engine, at the largest --streams. The default is long on purpose: a pass each "+
			"200 ms for 8,192 responses fills 2 cores with our own arms already, and an arm that fills the machine "+
			"is measured as cheaper than it is, as it merges what it is late with; at 400 ms the dearest arms have "+
			"room on 2 cores")
	f.osl = g.Int("osl", 128, cli.Range(2, 1_000_000).Unit("tokens"),
		"tokens of a response; the first ones have lengths spread over it, so that starts and ends are spread and "+
			"the window may be shorter than a response")
	f.isl = g.Int("isl", 128, cli.Range(1, 1_000_000).Unit("words"), "words of a prompt")
	f.tokenBytes = g.Int("token-bytes", 16, cli.Range(tokentext.MinSize, tokentext.MaxSize).Unit("bytes"),
		"bytes of a token")
	f.first = g.Duration("time-to-first-token", 20*time.Millisecond,
		cli.Range(time.Millisecond, time.Minute).OrZero("at once"), "of an engine")
	f.engines = g.Int("engines", 64, cli.Range(1, 100_000).Unit("engines"), "engines, over all worker processes")
	f.processes = g.Int("worker-processes", 2, cli.Range(1, 64).Unit("processes"), "worker processes")

	g = app.Group("Runs")
	f.arms = g.EnumList("arm", names, names, "what is behind the frontend")
	f.pairs = g.Int("pairs", 5, cli.Range(1, 1000).Unit("repetitions"),
		"repetitions; each runs every arm once, with fresh processes, every other one in reverse order. All arms "+
			"once take about 80 s, the default under 10 minutes; for more pairs raise this, or leave arms out (--arm "+
			"in-process,laneway-tcp,bare-tcp --pairs 20)")
	f.duration = g.Duration("duration", 6*time.Second, cli.Range(100*time.Millisecond, time.Hour),
		"length of the window in which a run is measured")
	f.warmup = g.Duration("warmup-duration", 2*time.Second, cli.Range(time.Millisecond, time.Hour),
		"load before the window, once all responses are open")
	f.outPath = g.Enum("out-path", string(frontend.OutAuto), []string{string(frontend.OutAuto),
		string(frontend.OutRing), string(frontend.OutInline), string(frontend.OutPull)},
		"who writes the events of the arms that can have a sink (in-process, laneway, bare); auto = io_uring where "+
			"it can be used, else inline. The other arms are pulled")

	g = app.Group("Report")
	f.label = g.String("label", "", "name of the run")
	f.dir = g.String("artifact-dir", "", "where run.json (schema "+httpbench.Schema+") goes; empty = runs/"+kindHTTP+
		"-TIME")
	f.profiles = g.String("cpuprofile-dir", "",
		"write a CPU profile of each frontend over the window; costs a little CPU itself")
	f.plane = planeflags.Register(app, planeflags.Options{Planes: []string{transport.PlaneTCP, transport.PlaneQUIC},
		FixedPlanes: true})
	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		if httpbench.IsChild() {
			return httpbench.Child(ctx, os.Stdin, os.Stdout, log, httpbench.Arms())
		}
		return f.run(ctx, app, log)
	})
}

func (f *httpFlags) run(ctx context.Context, app *cli.App, log *slog.Logger) error {
	cfg, err := f.config(ctx, app, log)
	if err != nil {
		return err
	}
	if err := cli.NeedFiles(2*slices.Max(cfg.Streams)+spareFiles,
		fmt.Sprintf("--streams %d with a client's connection for each, and a worker's in one arm",
			slices.Max(cfg.Streams))); err != nil {
		return err
	}
	r, err := httpbench.Execute(ctx, cfg)
	if r == nil {
		return err
	}
	if len(r.Runs) > 0 {
		if err := errors.Join(r.Print(app.Stdout), planebench.WriteRun(app, *f.dir, kindHTTP, r)); err != nil {
			return err
		}
	}
	var child *childproc.Error
	switch {
	case errors.As(err, &child) && !child.Setup:
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	case err != nil:
		return err
	}
	if err := r.Verdict(); err != nil {
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	}
	return nil
}

func (f *httpFlags) config(ctx context.Context, app *cli.App, log *slog.Logger) (httpbench.Config, error) {
	exe, err := os.Executable()
	if err != nil {
		return httpbench.Config{}, err
	}
	settings := f.plane.Settings()
	if app.Source("bind-addr") == cli.FromDefault {
		settings.BindAddr = "127.0.0.1:0" // all processes are on this host
	}
	cfg := httpbench.Config{
		SameInterval: !*f.equal, Pairs: *f.pairs, WorkerProcesses: *f.processes, Warmup: *f.warmup,
		Duration: *f.duration, OutPath: *f.outPath, Settings: settings,
		Load: httpbench.Load{Engines: *f.engines, OSL: *f.osl, ISL: *f.isl, TokenBytes: *f.tokenBytes,
			Interval: *f.interval, FirstToken: *f.first},
		ProfileDir: *f.profiles, Label: *f.label, Flags: app.Config(), Exe: exe, Args: []string{"http", "--log-level=" +
			app.Values()["log-level"]}, Log: log,
		Progress: func(s string) { fmt.Fprintln(app.Stderr, s) },
	}
	if log.Enabled(ctx, slog.LevelDebug) {
		cfg.Stderr = app.Stderr
	}
	for _, a := range httpbench.Arms() {
		if slices.Contains(*f.arms, a.Name) {
			cfg.Arms = append(cfg.Arms, a)
		}
	}
	for _, s := range *f.streams {
		n, err := strconv.Atoi(s)
		if err != nil {
			return cfg, &cli.FlagError{Flag: "streams", Where: "--streams", Value: s,
				Err: errors.New("is no number: write them like 64,8192")}
		}
		cfg.Streams = append(cfg.Streams, n)
	}
	return cfg, nil
}
