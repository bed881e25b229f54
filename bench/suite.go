package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/laneway-ai/laneway/bench/suite"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// addSuite declares `bench suite`.
func addSuite(parent *cli.App) {
	app := parent.Command("suite",
		"runs every benchmark of the repository, one after the other, and keeps revision, machine and raw output in "+
			"one folder")
	g := app.Group("Suite")
	out := g.String("out", "", "folder for the results, new or empty; empty = runs-bench/DATE-REVISION")
	only := g.EnumList("only", suite.Names(false), suite.Names(true), "parts to run")
	list := g.Bool("list", false, "print the parts with the minutes that each takes, and run nothing")
	quick := g.Bool("quick", false,
		"small counts and one repetition: whether everything runs; the figures are of no use")
	app.Handle(func(ctx context.Context, _ *slog.Logger) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		c := suite.Config{Only: *only, Quick: *quick, Out: *out, Self: self,
			Say: func(s string) { fmt.Fprintln(app.Stderr, s) }}
		if *list {
			c.Only = suite.Names(true)
		}
		if _, err := fmt.Fprint(app.Stdout, suite.Plan(c.Pick())); err != nil || *list {
			return err
		}
		ix, dir, err := suite.Run(ctx, c)
		if ix != nil {
			fmt.Fprintf(app.Stdout, "written to %s\n", filepath.Join(dir, suite.PageFile))
		}
		if failed, ok := errors.AsType[*suite.PartsError](err); ok && failed.Bad {
			return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
		}
		return err
	})
}
