package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/laneway-ai/laneway/bench/lanes"
	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// QUICSchema is the version of QUICReport.
const QUICSchema = "laneway.bench.quic/1"

// QUICReport is the run.json of `bench quic`. Times are of the whole suite, both ends: everything runs in one process.
type QUICReport struct {
	Schema   string         `json:"schema"`
	Config   map[string]any `json:"config"`
	Figures  []lanes.Figure `json:"figures"`
	RealS    float64        `json:"real_s"`
	UserS    float64        `json:"user_s"`
	SystemS  float64        `json:"system_s"`
	PeakRSS  int64          `json:"peak_rss_bytes,omitempty"`
	Machine  string         `json:"machine"`
	Finished string         `json:"finished_at"`
}

// addQUIC declares `bench quic`.
func addQUIC(parent *cli.App) {
	app := parent.Command("quic",
		"measures plane quic: handshake, throughput, echoes, four lanes, loss; and the QUIC library without sockets "+
			"and its datagrams")
	g := app.Group("Load")
	bytes := g.Size("bytes", 64*cli.MiB, cli.Range(cli.MiB, 64*cli.GiB),
		"a transfer over a socket; an eighth of it where packets are lost, a quarter in datagrams")
	memory := g.Size("memory-bytes", 16*cli.MiB, cli.Range(cli.MiB, 64*cli.GiB), "a transfer without sockets")
	echoes := g.Int("echoes", 5000, cli.Range(10, 10_000_000).Unit("round trips"), "echoes of 1 KiB, one at a time")
	runs := g.Int("pairs", 3, cli.Range(1, 100).Unit("repetitions"), "repetitions, every other one in reverse order")
	dir := app.Group("Report").String("artifact-dir", "", "where run.json (schema "+QUICSchema+
		") goes; empty = runs/bench-quic-TIME")
	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		began := time.Now()
		r := QUICReport{Schema: QUICSchema, Config: app.Config(), Machine: fmt.Sprintf("%d cores", procstat.CPUs())}
		var err error
		r.Figures, err = lanes.Calibers(ctx, lanes.CaliberConfig{Bytes: *bytes, Memory: *memory, Echoes: *echoes,
			Runs: *runs, Log: log,
			Progress: func(s string) { fmt.Fprintln(app.Stderr, s) }})
		if err != nil {
			return err
		}
		r.RealS = time.Since(began).Seconds()
		user, system := lanes.ProcessCPU()
		r.UserS, r.SystemS = user.Seconds(), system.Seconds()
		r.PeakRSS, _ = procstat.RSSPeak(procstat.Self)
		r.Finished = time.Now().UTC().Format(time.RFC3339)
		if err := benchtable.Print(app.Stdout, r.Shown()...); err != nil {
			return err
		}
		return planebench.WriteRun(app, *dir, "bench-quic", r)
	})
}

// Shown is the table: median, range and standard deviation over the runs, and where a rate or a time stands beside the
// first one of its kind, the ratio.
func (r QUICReport) Shown() []benchtable.Table {
	t := benchtable.Table{Head: []string{"caliber", "unit", "median [min-max]", "stddev", "runs", "to", "ratio"}}
	var names []string
	values, units := map[string][]float64{}, map[string]string{}
	for _, f := range r.Figures {
		if values[f.Caliber] == nil {
			names = append(names, f.Caliber)
		}
		values[f.Caliber], units[f.Caliber] = append(values[f.Caliber], f.Value), f.Unit
	}
	for _, name := range names {
		base, ratio := lanes.Base(name), "-"
		if base == "" {
			base = "-"
		} else {
			ratio = benchtable.RatioOf(values[name], values[base]).String()
		}
		v := values[name]
		t.Add(name, units[name], benchtable.SpreadOf(v).Text("%.1f", "-"), deviation(v), fmt.Sprint(len(v)), base,
			ratio)
	}
	t.Note("The whole suite, both ends: real %.2f s, user %.2f s, system %.2f s, peak RSS %.0f MiB; %s.", r.RealS,
		r.UserS, r.SystemS, float64(r.PeakRSS)/(1<<20), r.Machine)
	return []benchtable.Table{t}
}

// deviation is the standard deviation of a sample as a share of its mean, "-" where there is none.
func deviation(v []float64) string {
	if len(v) < 2 {
		return "-"
	}
	var sum, squares float64
	for _, x := range v {
		sum += x
	}
	mean := sum / float64(len(v))
	if mean == 0 {
		return "-"
	}
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	return fmt.Sprintf("%.1f%%", 100*math.Sqrt(squares/float64(len(v)-1))/mean)
}
