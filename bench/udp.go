package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/laneway-ai/laneway/bench/lanes"
	"github.com/laneway-ai/laneway/bench/udp"
	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// UDPSchema is the version of UDPReport.
const UDPSchema = "laneway.bench.udp/1"

// UDPReport is the run.json of `bench udp`.
type UDPReport struct {
	Schema  string         `json:"schema"`
	Config  map[string]any `json:"config"`
	Runs    []udp.Run      `json:"runs"`
	Lanes   []lanes.Run    `json:"lanes"`
	Pacings []udp.Pacing   `json:"pacing"`
}

// addUDP declares `bench udp`.
func addUDP(parent *cli.App) {
	app := parent.Command("udp",
		"measures the ways to send and receive UDP datagrams, and one of our QUIC lanes beside them (Linux)")
	g := app.Group("Load")
	size := g.Int("datagram-size", 1000, cli.Range(udp.MinDatagram, 1472).Unit("bytes"),
		"payload of a datagram; 64 segments of more than 1,023 bytes do not fit one message and are left out")
	bytes := g.Size("bytes", 32_000_000, cli.Range(1_000_000, 100_000_000_000), "what each run sends")
	transfer := g.Size("transfer-bytes", 100_000_000, cli.Range(1_000_000, 100_000_000_000), "a transfer over a lane")
	runs := g.Int("pairs", 3, cli.Range(1, 100).Unit("repetitions"),
		"repetitions of each way, every other one in reverse order")
	buffer := g.Size("udp-buffer", 8*cli.MiB, cli.Range(64*cli.KiB, 512*cli.MiB),
		"SO_RCVBUF and SO_SNDBUF; the kernel caps them at net.core.rmem_max and wmem_max")
	transfers := g.Int("transfers", 10, cli.Range(1, 1000).Unit("transfers"),
		"transfers of --transfer-bytes over one lane in each run of it")
	dir := app.Group("Report").String("artifact-dir", "", "where run.json (schema "+UDPSchema+
		") goes; empty = runs/bench-udp-TIME")
	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		progress := func(s string) { fmt.Fprintln(app.Stderr, s) }
		r := UDPReport{Schema: UDPSchema, Config: app.Config()}
		var err error
		if r.Runs, err = udp.Measure(ctx, udp.Config{Datagram: *size, Bytes: *bytes, Runs: *runs, Buffer: int(*buffer),
			Progress: progress}); err != nil {
			return err
		}
		if r.Lanes, err = lanes.Offload(ctx, lanes.OffloadConfig{Bytes: *transfer, Transfers: *transfers, Runs: *runs,
			Log: log, Progress: progress}); err != nil {
			return err
		}
		if r.Pacings, err = udp.Pacings(); err != nil {
			return err
		}
		if err := benchtable.Print(app.Stdout, r.Shown()...); err != nil {
			return err
		}
		if err := planebench.WriteRun(app, *dir, "bench-udp", r); err != nil {
			return err
		}
		return r.verdict()
	})
}

// verdict is an error when a datagram was wrong.
func (r UDPReport) verdict() error {
	var errs []error
	for _, run := range r.Runs {
		if run.Wrong > 0 {
			errs = append(errs, fmt.Errorf("%s, GRO %v, run %d: %d datagrams were wrong", run.Way, run.GRO, run.Run,
				run.Wrong))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	}
	return nil
}

// Shown are the tables: each row as the median over its runs, with the range of the rate, and beside it the CPU of both
// threads over that of sendmsg with the same receiver.
func (r UDPReport) Shown() []benchtable.Table {
	ways := benchtable.Table{Title: "One socket to another over loopback", Head: []string{"sent by", "GRO", "sent MB/s",
		"[min-max]", "received MB/s", "lost", "send CPU ms/MB", "receive CPU ms/MB", "CPU, to sendmsg",
		"send calls/MB", "receive calls/MB"}}
	cpu := func(r udp.Run) float64 { return r.SendCPU + r.RecvCPU }
	base := map[bool][]float64{}
	for _, g := range udp.Groups(r.Runs) {
		m := func(format string, f func(udp.Run) float64) string {
			return fmt.Sprintf(format, benchtable.SpreadOf(g.Values(f)).Median)
		}
		if g.Way == udp.Plain {
			base[g.GRO] = g.Values(cpu)
		}
		sent := benchtable.SpreadOf(g.Values(func(r udp.Run) float64 { return r.SentMBS }))
		ways.Add(g.Way.String(), onOff(g.GRO), fmt.Sprintf("%.0f", sent.Median), fmt.Sprintf("[%.0f-%.0f]", sent.Min,
			sent.Max),
			m("%.0f", func(r udp.Run) float64 { return r.RecvMBS }),
			m("%.1f%%", func(r udp.Run) float64 { return 100 * r.Lost() }),
			m("%.3f", func(r udp.Run) float64 { return r.SendCPU }),
			m("%.3f", func(r udp.Run) float64 { return r.RecvCPU }), benchtable.RatioOf(g.Values(cpu),
				base[g.GRO]).String(),
			m("%.0f", func(r udp.Run) float64 { return r.SendCalls }),
			m("%.0f", func(r udp.Run) float64 { return r.RecvCalls }))
	}
	pacing := benchtable.Table{Title: "Pacing by the kernel", Head: []string{"option", "asked", "read back", "measured",
		""}}
	for _, p := range r.Pacings {
		pacing.Add(p.Option, p.Asked, p.ReadBack, p.Measured, p.Note)
	}
	return []benchtable.Table{ways, r.lanes(), pacing}
}

// lanes is the table of transfers over one of our lanes.
func (r UDPReport) lanes() benchtable.Table {
	t := benchtable.Table{Title: "One QUIC lane", Head: []string{"offload", "runs", "MB/s", "CPU ms/MB",
		"CPU, to neither", "datagrams/MB", "send calls/MB", "receive calls/MB", "drops"}}
	values := func(name string, f func(lanes.Run) float64) (out []float64) {
		for _, l := range r.Lanes {
			if l.Name() == name {
				out = append(out, f(l))
			}
		}
		return out
	}
	cpu := func(l lanes.Run) float64 { return l.CPU }
	for _, setting := range lanes.Offloads() {
		name := setting.Name()
		median := func(f func(lanes.Run) float64) string {
			return fmt.Sprintf("%.0f", benchtable.SpreadOf(values(name, f)).Median)
		}
		of := values(name, cpu)
		if len(of) == 0 {
			continue
		}
		t.Add(name, fmt.Sprint(len(of)),
			benchtable.SpreadOf(values(name, func(l lanes.Run) float64 { return l.MBS })).Text("%.0f", "-"),
			benchtable.SpreadOf(of).Text("%.3f", "-"),
			benchtable.RatioOf(of, values(lanes.Run{}.Name(), cpu)).String(),
			median(func(l lanes.Run) float64 { return l.Datagrams }),
			median(func(l lanes.Run) float64 { return l.SendCalls }),
			median(func(l lanes.Run) float64 { return l.RecvCalls }),
			median(func(l lanes.Run) float64 { return float64(l.Drops) }))
	}
	return t
}

func onOff(v bool) string {
	if v {
		return "on"
	}
	return "off"
}
