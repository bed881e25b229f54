package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/bench/peers"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/transport"
)

// kindGaps stands in the names of run directories.
const kindGaps = "bench-gaps"

// gapFlags are the flags of `bench gaps`.
type gapFlags struct {
	app    *cli.App
	plane  *planeflags.Flags
	common *planebench.Command

	gaps, deliveries *[]string
	pairs, streams   *int
	duration, warmup *time.Duration
}

// addGaps declares `bench gaps`.
func addGaps(parent *cli.App) {
	app := parent.Command("gaps",
		"measures what the gap of a batch costs and saves: CPU, delay, ITL and TTFT at several gaps, "+
			"beside the bare connection, which writes at once")
	f := &gapFlags{app: app}
	g := app.Group("Load")
	f.streams = g.Int("streams", 1024, cli.Range(1, 60_000).Unit("responses"), "open responses; a closed loop")
	f.common = planebench.Declare(app, g, 128, 1, "streams")
	g = app.Group("Runs")
	f.gaps = g.EnumList("gap", []string{"0s", "1ms", "2ms", "3ms"},
		[]string{"0s", "0.5ms", "1ms", "2ms", "3ms", "4ms", "5ms"},
		"the longest that a write waits for more records, each in an arm of its own")
	f.deliveries = g.EnumList("delivery", []string{planebench.Sink}, planebench.Deliveries(),
		"how responses are consumed: pull = a goroutine each, woken; sink = called by the reader")
	f.pairs = g.Int("pairs", 5, cli.Range(1, 1000).Unit("repetitions"),
		"repetitions; each runs every arm once, with fresh processes, every other one in reverse order")
	f.duration = g.Duration("duration", 3*time.Second, cli.Range(100*time.Millisecond, time.Hour),
		"length of the window in which a run is measured")
	f.warmup = g.Duration("warmup-duration", 2*time.Second, cli.Range(time.Millisecond, time.Hour),
		"load before the window")
	f.common.DeclareReport(app.Group("Report"), kindGaps)
	f.plane = planeflags.Register(app, planeflags.Options{Planes: []string{transport.PlaneTCP, transport.PlaneQUIC},
		PlaneUsage: "planes to run; tls has no bare connection to be compared with"})
	app.CheckLast(func() error {
		cfg, err := f.config(context.Background(), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return cfg.Validate()
	})
	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		if planebench.IsChild() {
			return planebench.Child(ctx, os.Stdin, os.Stdout, log, known()...)
		}
		cfg, err := f.config(ctx, log)
		if err != nil {
			return err
		}
		return f.common.Run(ctx, cfg, kindGaps, 0)
	})
}

// config is what the flags ask for: each gap is compared with the bare connection of its plane and delivery, then with
// the first gap.
func (f *gapFlags) config(ctx context.Context, log *slog.Logger) (planebench.Config, error) {
	if f.app.Source("batch-gap-max") != cli.FromDefault {
		return planebench.Config{}, &cli.FlagError{Flag: "batch-gap-max", Where: "--batch-gap-max",
			Value: f.app.Values()["batch-gap-max"],
			Err:   errors.New("each arm has a gap of its own here: use --gap")}
	}
	cfg, err := f.common.Config(ctx, log, f.plane.Settings(), *f.streams, "gaps")
	if err != nil {
		return cfg, err
	}
	cfg.Deliveries, cfg.Runs, cfg.Duration, cfg.Warmup = *f.deliveries, *f.pairs, *f.duration, *f.warmup
	for _, text := range *f.gaps {
		gap, err := time.ParseDuration(text)
		if err != nil {
			return cfg, err
		}
		cfg.Gaps = append(cfg.Gaps, gap)
	}
	for _, p := range cfg.Planes {
		if p != transport.PlaneTLS {
			bare := peers.Bare(p)
			bare.Deliveries = *f.deliveries
			cfg.Peers = append(cfg.Peers, bare)
		}
	}
	cfg.Compare = compareGaps(cfg.Arms())
	return cfg, nil
}

// compareGaps lists which arms are compared, {arm, base}.
func compareGaps(arms []string) (pairs [][2]string) {
	first := map[string]string{} // by plane and delivery
	for _, base := range []func(string) string{func(of string) string { return "bare-" + of },
		func(of string) string { return first[of] }} {
		for _, a := range arms {
			of, _, ours := strings.Cut(a, "-gap-")
			if !ours {
				continue
			}
			if first[of] == "" {
				first[of] = a
			}
			for _, b := range arms {
				if b == base(of) && b != a {
					pairs = append(pairs, [2]string{a, b})
				}
			}
		}
	}
	return pairs
}
