package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/laneway-ai/laneway/internal/lab/loadgen"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// addMerge declares the command `loadgen merge`: it joins the run directories of several generators into one.
func addMerge(parent *cli.App) {
	app := parent.Command("merge", "joins the run directories of generators that loaded one server at the same time")
	app.AllowArgs("DIR DIR...")
	g := app.Group("Report")
	dir := g.String("artifact-dir", "", "run directory of the merged run, which must not hold a run yet")
	label := g.String("label", "", "name of the merged run")
	format := g.Enum("format", loadgen.FormatTable, loadgen.Formats(),
		"what is printed: the table, or one JSON object with the keys of vllm or aiperf")
	g = app.Group("Judgement")
	maxErrorRate := g.Float("max-error-rate", 0, cli.Range(0, 1), "exit 2 when a larger share of the requests failed")
	threshold := g.Repeated("threshold", "CONDITION", "exit 3 unless it holds, like 'ttft_p99<250ms'", checkThreshold)
	app.Check(func() error {
		if *dir == "" {
			return &cli.FlagError{Flag: "artifact-dir", Where: "--artifact-dir", Err: errNoDir}
		}
		return nil
	})
	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		r, err := loadgen.Merge(app.Args(), *dir, *label, log)
		if err != nil {
			return err
		}
		if err := show(app, *format, *dir, r); err != nil {
			return err
		}
		return judge(ctx, r, *maxErrorRate, parseThresholds(*threshold))
	})
}

var errNoDir = errors.New("names no directory: say where the merged run goes")

func checkThreshold(s string) error { _, err := report.ParseThreshold(s); return err }
