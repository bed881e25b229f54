// Command analysis compares load runs by the number of holders that they had.
//
//	go run ./analysis RUN_DIR...
//	go run ./analysis compare A... -- B...
//
// A folder of runs stands for all runs in it. docs/reading-reports.md says how to read what it prints.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/laneway-ai/laneway/internal/lab/analysis"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

func main() { os.Exit(run(os.Args[1:], newApp())) }

func newApp() *cli.App {
	return cli.New("analysis",
		"puts load runs into a table by configuration and number of holders; `analysis compare A... -- B...` holds "+
			"two sides against each other")
}

// divider stands for the -- between the sides: cli takes a bare -- as the end of the flags and forgets it. No file name
// holds a NUL.
const divider = "\x00--"

func run(args []string, app *cli.App) int {
	f := declare(app)
	out := app.Group("Output").String("out", "analysis-out", "the folder for the plots (SVG); empty = no plots")
	app.AllowArgs("RUN_DIR...")

	cmp := app.Command("compare", "holds runs A against runs B, equal numbers of holders only: compare A... -- B...")
	fc := declare(cmp)
	cmp.AllowArgs("A... -- B...")
	cmp.Handle(func(ctx context.Context, _ *slog.Logger) error {
		return compare(ctx, cmp.Stdout, cmp.Args(), fc.options())
	})
	across := cmp.Group("Judgement").List("across", nil,
		"settings of run.json's config in which the sides may differ although they change the load: concurrency,osl")
	fc.across = across

	if len(args) > 0 && args[0] == "compare" {
		if i := slices.Index(args, "--"); i >= 0 {
			args = slices.Clone(args)
			args[i] = divider
		}
	}
	return app.Run(args, func(ctx context.Context, _ *slog.Logger) error {
		return table(ctx, app.Stdout, app.Args(), f.options(), *out)
	})
}

type flags struct {
	window  *string
	allow   *[]string
	errRate *float64
	across  *[]string
}

func declare(app *cli.App) *flags {
	g := app.Group("Judgement")
	f := &flags{
		window: g.Enum("window", analysis.WindowSteady, []string{analysis.WindowSteady, analysis.WindowRaw},
			"where rates and latencies are from; raw holds the opening burst"),
		allow: g.EnumList("allow", nil, analysis.Allowable(), "marks that do not set a run aside"),
		errRate: g.Float("max-error-rate", 0, cli.Range(0.0, 1.0),
			"share of failed requests above which a run is set aside, 0 to 1"),
	}
	return f
}

func (f *flags) options() analysis.Options {
	o := analysis.Options{Window: *f.window, Allow: *f.allow, MaxErrorRate: *f.errRate}
	if f.across != nil {
		o.Across = *f.across
	}
	return o
}

func table(ctx context.Context, w io.Writer, dirs []string, opts analysis.Options, out string) error {
	if len(dirs) == 0 {
		return errors.New("no run directory given: analysis RUN_DIR..., or analysis compare A... -- B... (see --help)")
	}
	_, err := analysis.Report(ctx, w, dirs, out, opts)
	return exit(err)
}

func compare(ctx context.Context, w io.Writer, args []string, opts analysis.Options) error {
	i := slices.Index(args, divider)
	if i < 0 {
		return errors.New("the sides are divided by --: analysis compare A... -- B... (see --help)")
	}
	if i == 0 || i == len(args)-1 {
		return errors.New("a side has no run: analysis compare A... -- B... (see --help)")
	}
	c, err := analysis.Compare(ctx, args[:i], args[i+1:], opts)
	if c != nil {
		if err := c.Print(w); err != nil {
			return err
		}
	}
	return exit(err)
}

// exit gives the exit code 4 to what has nothing comparable.
func exit(err error) error {
	var none *analysis.NotComparableError
	if errors.As(err, &none) {
		return &cli.ExitError{Code: cli.ExitNotComparable, Err: err}
	}
	return err
}
