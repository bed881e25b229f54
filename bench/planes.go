package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/bench/peers"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/transport"
)

// peerFlags are the flags of the program itself.
type peerFlags struct {
	app   *cli.App
	plane *planeflags.Flags

	common *planebench.Command

	peers, deliveries, baselines *[]string
	pairs, streams               *int
	duration, warmup             *time.Duration
	floor                        *string
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
	f := &peerFlags{app: app}
	g := app.Group("Load")
	f.streams = g.Int("streams", 1024, cli.Range(1, 60_000).Unit("responses"),
		"open responses, over all frontends; a closed loop")
	f.common = planebench.Declare(app, g, 8, 1, "streams")

	g = app.Group("Runs")
	f.peers = g.EnumList("peer", peers.Names(), peerNames(), "what is run beside Laneway")
	f.deliveries = g.EnumList("delivery", planebench.Deliveries(), planebench.Deliveries(),
		"how Laneway's and the bare connection's responses are consumed: pull = a goroutine each, woken; sink = "+
			"called by the reader. The other peers are pulled")
	f.baselines = g.EnumList("baseline", nil, planebench.Baselines(),
		"also run the bare planes of `loadgen plane`, over each plane and delivery")
	f.pairs = g.Int("pairs", 10, cli.Range(1, 1000).Unit("repetitions"),
		"repetitions; each runs every arm once, with fresh processes, every other one in reverse order")
	f.duration = g.Duration("duration", 3*time.Second, cli.Range(100*time.Millisecond, time.Hour),
		"length of the window in which a run is measured")
	f.warmup = g.Duration("warmup-duration", 2*time.Second, cli.Range(time.Millisecond, time.Hour),
		"load before the window")
	f.floor = g.String("floor", defaultFloor,
		"arm that every other one is compared with, pair by pair; an arm is NAME-DELIVERY. Unless set: another bare "+
			"connection when this one is not run, else none")

	f.common.DeclareReport(app.Group("Report"), kindPeers)
	f.plane = planeflags.Register(app, planeflags.Options{Planes: []string{transport.PlaneTCP, transport.PlaneQUIC},
		PlaneUsage: "planes of Laneway to run"})

	app.CheckLast(func() error {
		cfg, err := f.config(context.Background(), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return cfg.Validate()
	})
	return func(ctx context.Context, log *slog.Logger) error {
		if planebench.IsChild() {
			return planebench.Child(ctx, os.Stdin, os.Stdout, log, known()...)
		}
		return f.run(ctx, log)
	}
}

// kindPeers stands in the names of run directories.
const kindPeers = "bench"

// spareFiles is how many files a process needs beside one for each response.
const spareFiles = 64

// config is what the flags ask for.
func (f *peerFlags) config(ctx context.Context, log *slog.Logger) (planebench.Config, error) {
	cfg, err := f.common.Config(ctx, log, f.plane.Settings(), *f.streams)
	if err != nil {
		return cfg, err
	}
	cfg.Deliveries, cfg.Runs, cfg.Peers, cfg.Baselines, cfg.Duration, cfg.Warmup = *f.deliveries, *f.pairs, f.picked(),
		*f.baselines, *f.duration, *f.warmup
	arms := cfg.Arms()
	floor := *f.floor
	if !slices.Contains(arms, floor) {
		if f.app.Source("floor") != cli.FromDefault {
			return cfg, &cli.FlagError{Flag: "floor", Where: "--floor", Value: floor,
				Err: fmt.Errorf("is not run: use one of %v", arms)}
		}
		floor = otherFloor(arms)
	}
	cfg.Compare = compare(arms, floor)
	return cfg, nil
}

func (f *peerFlags) run(ctx context.Context, log *slog.Logger) error {
	cfg, err := f.config(ctx, log)
	if err != nil {
		return err
	}
	if err := cli.NeedFiles(*f.streams+spareFiles, fmt.Sprintf("--streams %d with a connection for each",
		*f.streams)); err != nil {
		return err
	}
	return f.common.Run(ctx, cfg, kindPeers, 0)
}

// picked are the peers that are run, each in those of its deliveries that are asked for: one that can only be pulled is
// pulled.
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
