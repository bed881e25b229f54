// Command cluster runs etcd, NATS, mock workers, a frontend and the load generator on one machine, once for each arm,
// and prints one table.
//
//	go run ./cmd/cluster
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/laneway-ai/laneway/internal/lab/analysis"
	"github.com/laneway-ai/laneway/internal/lab/cluster"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

func main() {
	os.Exit(run(os.Args[1:],
		cli.New("cluster", "runs a cluster on one machine, with every process its own, and measures each arm")))
}

func run(args []string, app *cli.App) int {
	f := declare(app)
	return app.Run(args, func(ctx context.Context, log *slog.Logger) error { return compare(ctx, log, app, f) })
}

// compare makes the runs and prints what came out of them, also when not all could be made.
func compare(ctx context.Context, log *slog.Logger, app *cli.App, f *flags) error {
	cfg := f.config()
	cfg.Log, cfg.Progress = log, app.Stderr
	if err := cfg.Preflight(ctx); err != nil { // before minutes of building
		return err
	}
	var err error
	if cfg.Programs, err = f.programs(ctx, func(s string) { fmt.Fprintln(app.Stderr, s) }); err != nil {
		return err
	}
	outcomes, err := cluster.Run(ctx, cfg)
	err = errors.Join(err, show(app.Stdout, outcomes))
	if len(outcomes) == 0 || ctx.Err() != nil {
		return err
	}
	return errors.Join(err, analyse(ctx, app.Stdout, outcomes, filepath.Join(cfg.Dir, analysisDir),
		analysis.Options{Allow: *f.allow, MaxErrorRate: cfg.MaxErrorRate}))
}

// analysisDir gets the plots, beside the runs' directories.
const analysisDir = "analysis"

// analyse puts the runs into the table by configuration and number of holders. That nothing may be compared is an
// answer: the runs were good or bad for themselves.
func analyse(ctx context.Context, w io.Writer, outcomes []cluster.Outcome, out string, opts analysis.Options) error {
	var dirs []string
	for _, o := range outcomes {
		dirs = append(dirs, o.Dir)
	}
	fmt.Fprint(w, "\nAnalysis\n")
	_, err := analysis.Report(ctx, w, dirs, out, opts)
	var none *analysis.NotComparableError
	if errors.As(err, &none) {
		_, err = fmt.Fprintf(w,
			"\n%v. Marks can be allowed with --allow here and in `go run ./analysis`, which also takes --window raw.\n",
			none)
	}
	return err
}

// show prints each run and the table of all, and returns what is wrong with them. Numbers that may not be used give
// exit code 2.
func show(w io.Writer, outcomes []cluster.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	var runs []*report.Run
	var invalid, other []error
	for _, o := range outcomes {
		runs = append(runs, o.Run)
		if err := report.Print(w, o.Run); err != nil {
			return err
		}
		fmt.Fprintf(w, "written to %s\n\n", o.Dir)
		if o.Invalid != nil {
			invalid = append(invalid, fmt.Errorf("%s: %w", o.Name, o.Invalid))
		}
		if o.Incomplete != nil {
			other = append(other, fmt.Errorf("%s: the run directory is not complete: %w", o.Name, o.Incomplete))
		}
	}
	if err := report.PrintArms(w, runs, func(i int) string { return outcomes[i].Name }); err != nil {
		return err
	}
	err := errors.Join(append(invalid, other...)...)
	if len(invalid) > 0 {
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	}
	return err
}
