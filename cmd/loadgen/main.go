// Command loadgen makes load on an OpenAI-compatible server and measures what its clients see.
//
//	loadgen --url http://127.0.0.1:8000 --concurrency 64 --request-count 1000
//
// It prints a table and writes a run directory: run.json, requests.jsonl and timeseries.csv. `loadgen plane` drives the
// response plane itself between processes, without HTTP; `loadgen transport` and `loadgen streams` measure messages and
// streams over lanes; `loadgen merge` joins the directories of several generators.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/loadgen"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

func main() { os.Exit(run(os.Args[1:], newApp())) }

func newApp() *cli.App {
	return cli.New("loadgen", "makes load on an OpenAI-compatible server and measures what its clients see")
}

func run(args []string, app *cli.App) int {
	addPlane(app)
	addTransport(app)
	addStreams(app)
	addMerge(app)
	f := declare(app)
	app.CheckLast(func() error { return f.check(app) })
	return app.Run(args, func(ctx context.Context, log *slog.Logger) error { return load(ctx, log, app, f) })
}

// spareFiles is how many files the program needs beside one for each connection.
const spareFiles = 64

func load(ctx context.Context, log *slog.Logger, app *cli.App, f *flags) error {
	cfg, err := f.config(app)
	if err != nil {
		return err
	}
	cfg.Log = log
	what := fmt.Sprintf("--concurrency %d", cfg.Concurrency)
	if err := errors.Join(cli.NeedFiles(cfg.Concurrency+len(cfg.MetricsURLs)+spareFiles, what),
		loadgen.CheckPorts(cfg.Concurrency)); err != nil {
		return err
	}
	if cfg.Dir == "" {
		cfg.Dir = report.DefaultDir("loadgen", time.Now())
	}
	ui := newUI(*f.ui, app.Stderr)
	cfg.Progress = ui.show
	r, err := loadgen.Run(ctx, cfg)
	ui.end()
	if err != nil {
		return err
	}
	if err := show(app, *f.format, cfg.Dir, r); err != nil {
		return err
	}
	return judge(ctx, r, *f.maxErrorRate, f.thresholds())
}

// show prints the run. A format for programs leaves standard output to them alone.
func show(app *cli.App, format, dir string, r *report.Run) error {
	where := app.Stdout
	if format == loadgen.FormatTable {
		if err := report.Print(app.Stdout, r); err != nil {
			return err
		}
	} else {
		if err := loadgen.WriteFormat(app.Stdout, format, dir, r); err != nil {
			return err
		}
		where = app.Stderr
	}
	fmt.Fprintf(where, "written to %s\n", dir)
	return nil
}

// judge turns the report into the exit code.
func judge(ctx context.Context, r *report.Run, maxErrorRate float64, thresholds []report.Threshold) error {
	if err := r.Verdict(maxErrorRate); err != nil && ctx.Err() == nil {
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the run was interrupted, its report is partial: %w", context.Cause(ctx))
	}
	var missed []error
	for _, t := range thresholds {
		if m := t.Check(r); m != nil {
			missed = append(missed, m)
		}
	}
	if len(missed) > 0 {
		return &cli.ExitError{Code: cli.ExitThreshold, Err: errors.Join(missed...)}
	}
	return nil
}
