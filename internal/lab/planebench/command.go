package planebench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

// Command is what the programs that run planes have in common: flags of the load and of the report, and how a run
// becomes an exit code.
type Command struct {
	app *cli.App

	engines, processes, frontends, osl, tokenBytes *int
	interval                                       *time.Duration
	label, dir, profiles                           *string
}

// loopback is where the worker processes listen unless --bind-addr says otherwise: all processes are on this host.
const loopback = "127.0.0.1:0"

// Declare declares the flags of the load, in g. of names what the frontend processes share.
func Declare(app *cli.App, g *cli.Group, engines, frontends int, of string) *Command {
	c := &Command{app: app}
	c.engines = g.Int("engines", engines, cli.Range(1, 100_000).Unit("engines"), "engines, over all worker processes")
	c.processes = g.Int("worker-processes", 2, cli.Range(1, 64).Unit("processes"), "worker processes")
	c.frontends = g.Int("frontends", frontends, cli.Range(1, 64).Unit("processes"),
		"frontend processes, which share the "+of)
	c.interval = g.Duration("inter-token-latency", 20*time.Millisecond,
		cli.Range(time.Millisecond, time.Minute).OrZero("no pause"),
		"time between two passes of an engine; passes of different engines are spread over it")
	c.osl = g.Int("osl", 256, cli.Range(1, 1_000_000).Unit("records"), "records of a response")
	c.tokenBytes = g.Int("token-bytes", 64, cli.Range(MinTokenBytes, 1<<20).Unit("bytes"), "bytes of a record")
	return c
}

// DeclareReport declares the flags of the report, in g. kind stands in the name of the run directory.
func (c *Command) DeclareReport(g *cli.Group, kind string) {
	c.label = g.String("label", "", "name of the run")
	c.dir = g.String("artifact-dir", "", "where run.json (schema "+Schema+") goes; empty = runs/"+kind+"-TIME")
	c.profiles = g.String("cpuprofile-dir", "",
		"write a CPU profile of each process over the window; costs a little CPU itself")
}

// Config is what the flags say. subcommand is how a child is started, "" = the program itself.
func (c *Command) Config(ctx context.Context, log *slog.Logger, s planeflags.Settings, concurrency int,
	subcommand ...string) (Config, error) {
	exe, err := os.Executable()
	if err != nil {
		return Config{}, err
	}
	if c.app.Source("bind-addr") == cli.FromDefault {
		s.BindAddr = loopback
	}
	cfg := Config{
		Planes: s.Planes, Settings: s,
		Load: Load{Concurrency: concurrency, Engines: *c.engines, OSL: *c.osl, TokenBytes: *c.tokenBytes,
			Interval: *c.interval},
		Frontends: *c.frontends, WorkerProcesses: *c.processes, ProfileDir: *c.profiles, Label: *c.label,
		Flags: c.app.Config(),
		Exe:   exe, Args: append(subcommand, "--log-level="+c.app.Values()["log-level"]), Log: log,
		Progress: func(s string) { fmt.Fprintln(c.app.Stderr, s) },
	}
	if log.Enabled(ctx, slog.LevelDebug) {
		cfg.Stderr = c.app.Stderr
	}
	return cfg, nil
}

// Run runs cfg, prints the tables and writes run.json, also of what ran before an error. maxErrors is the share of
// responses that may fail.
func (c *Command) Run(ctx context.Context, cfg Config, kind string, maxErrors float64) error {
	r, err := Execute(ctx, cfg)
	if r == nil {
		return err
	}
	if len(r.Runs) > 0 {
		if err := errors.Join(r.Print(c.app.Stdout), WriteRun(c.app, *c.dir, kind, r)); err != nil {
			return err
		}
	}
	var child *ChildError
	switch {
	case errors.As(err, &child) && !child.Setup:
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	case err != nil:
		return err
	}
	if err := r.Verdict(maxErrors); err != nil {
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	}
	return nil
}

// RunDir is dir, or runs/KIND-TIME-XXXXXXXX when that is empty.
func RunDir(dir, kind string) string {
	if dir != "" {
		return dir
	}
	return report.DefaultDir(kind, time.Now())
}

// WriteRun writes a report into RunDir and says where.
func WriteRun(app *cli.App, dir, kind string, report any) error {
	dir = RunDir(dir, kind)
	if err := WriteReport(dir, report); err != nil {
		return err
	}
	_, err := fmt.Fprintf(app.Stdout, "written to %s\n", dir)
	return err
}
