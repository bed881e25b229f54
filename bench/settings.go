package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/bench/settings"
	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/transport"
)

// SettingsSchema is the version of SettingsReport.
const SettingsSchema = "laneway.bench.settings/1"

// SettingsReport is the run.json of `bench settings`.
type SettingsReport struct {
	Schema string           `json:"schema"`
	Config map[string]any   `json:"config"`
	Pairs  []settings.Pair  `json:"pairs"`
	Left   []settings.Left  `json:"left_out,omitempty"`
	Tried  []SettingsChange `json:"settings"`

	settings []settings.Setting
	planes   []string
}

// Shown is the table.
func (r SettingsReport) Shown() []benchtable.Table {
	return []benchtable.Table{settings.Shown(r.settings, r.planes, r.Pairs, r.Left)}
}

// SettingsChange says what a setting was.
type SettingsChange struct {
	Name  string   `json:"name"`
	Flags []string `json:"flags,omitempty"`
	Env   []string `json:"env,omitempty"`
}

// kindSettings stands in the names of run directories.
const kindSettings = "bench-settings"

// addSettings declares `bench settings`.
func addSettings(parent *cli.App) {
	app := parent.Command("settings",
		"tries settings of plane, runtime and build one at a time: CPU for each response over that with the default, "+
			"in pairs (about 14 minutes)")
	g := app.Group("Load")
	streams := g.Int("streams", 1024, cli.Range(1, 60_000).Unit("responses"), "open responses; a closed loop")
	engines := g.Int("engines", 8, cli.Range(2, 100_000).Unit("engines"), "engines, in 2 worker processes")
	interval := g.Duration("inter-token-latency", 20*time.Millisecond, cli.Range(time.Millisecond, time.Minute),
		"time between two passes of an engine")
	osl := g.Int("osl", 256, cli.Range(1, 1_000_000).Unit("records"), "records of a response")
	g = app.Group("Runs")
	names := g.EnumList("setting", settings.Names(), settings.Names(),
		"what is tried; fixed-gap-* are the bare batched connection, without windows, cancel or failover")
	planes := g.EnumList("planes", []string{transport.PlaneTCP, transport.PlaneQUIC},
		[]string{transport.PlaneTCP, transport.PlaneQUIC}, "planes to try it on")
	delivery := g.Enum("delivery", planebench.Sink, planebench.Deliveries(), "how responses are consumed")
	pairs := g.Int("pairs", 3, cli.Range(1, 100).Unit("pairs"),
		"pairs of each setting; every other round goes the other way round")
	duration := g.Duration("duration", 2*time.Second, cli.Range(100*time.Millisecond, time.Hour),
		"length of the window in which a run is measured")
	warmup := g.Duration("warmup-duration", time.Second, cli.Range(time.Millisecond, time.Hour),
		"load before the window")
	dir := app.Group("Report").String("artifact-dir", "", "where run.json (schema "+SettingsSchema+
		") and a folder for each run go; empty = runs/"+kindSettings+"-TIME")
	app.Handle(func(ctx context.Context, _ *slog.Logger) error {
		*dir = planebench.RunDir(*dir, kindSettings)
		c := settings.Config{Pairs: *pairs, Planes: *planes, Dir: *dir, Limit: 8*(*duration+*warmup) + 2*time.Minute,
			Say: func(s string) { fmt.Fprintln(app.Stderr, s) },
			Load: []string{fmt.Sprintf("--concurrency=%d", *streams), fmt.Sprintf("--engines=%d", *engines),
				"--worker-processes=2", "--frontends=1", "--inter-token-latency=" + interval.String(),
				fmt.Sprintf("--osl=%d", *osl), "--delivery=" + *delivery, "--duration=" + duration.String(),
				"--warmup-duration=" + warmup.String(), "--request-count=0"}}
		r := SettingsReport{Schema: SettingsSchema, Config: app.Config()}
		for _, s := range settings.All() {
			if slices.Contains(*names, s.Name) {
				c.Settings = append(c.Settings, s)
				r.Tried = append(r.Tried, SettingsChange{s.Name, s.Flags, s.Env})
			}
		}
		r.settings, r.planes = c.Settings, c.Planes
		var err error
		r.Pairs, r.Left, err = settings.Run(ctx, c)
		if len(r.Pairs) > 0 {
			err = errors.Join(err, benchtable.Print(app.Stdout, r.Shown()...), planebench.WriteRun(app, *dir,
				kindSettings, r))
		}
		if failed, ok := errors.AsType[*settings.RunError](err); ok && failed.Code == cli.ExitBadRun {
			return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
		}
		return err
	})
}
