package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/laneway-ai/laneway/bench/lanes"
	"github.com/laneway-ai/laneway/bench/udp"
	"github.com/laneway-ai/laneway/internal/cli"
	"github.com/laneway-ai/laneway/internal/planebench"
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
	app := parent.Command("udp", "measures the ways to send and receive UDP datagrams, and one of our QUIC lanes beside them (Linux)")
	g := app.Group("Load")
	size := g.Int("datagram-size", 1000, cli.Range(udp.MinDatagram, 1472).Unit("bytes"), "payload of a datagram; 64 segments of more than 1,023 bytes do not fit one message and are left out")
	bytes := g.Size("bytes", 32_000_000, cli.Range(1_000_000, 100_000_000_000), "what each run sends")
	transfer := g.Size("transfer-bytes", 100_000_000, cli.Range(1_000_000, 100_000_000_000), "a transfer over a lane")
	runs := g.Int("pairs", 3, cli.Range(1, 100).Unit("repetitions"), "repetitions of each way, every other one in reverse order")
	buffer := g.Size("udp-buffer", 8*cli.MiB, cli.Range(64*cli.KiB, 512*cli.MiB), "SO_RCVBUF and SO_SNDBUF; the kernel caps them at net.core.rmem_max and wmem_max")
	transfers := g.Int("transfers", 10, cli.Range(1, 1000).Unit("transfers"), "transfers of --transfer-bytes over one lane in each run of it")
	dir := app.Group("Report").String("artifact-dir", "", "where run.json (schema "+UDPSchema+") goes; empty = runs/bench-udp-TIME")
	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		progress := func(s string) { fmt.Fprintln(app.Stderr, s) }
		r := UDPReport{Schema: UDPSchema, Config: app.Config()}
		var err error
		if r.Runs, err = udp.Measure(ctx, udp.Config{Datagram: *size, Bytes: *bytes, Runs: *runs, Buffer: int(*buffer), Progress: progress}); err != nil {
			return err
		}
		if r.Lanes, err = lanes.Offload(ctx, lanes.OffloadConfig{Bytes: *transfer, Transfers: *transfers, Runs: *runs, Log: log, Progress: progress}); err != nil {
			return err
		}
		if r.Pacings, err = udp.Pacings(); err != nil {
			return err
		}
		if err := r.print(app.Stdout); err != nil {
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
			errs = append(errs, fmt.Errorf("%s, GRO %v, run %d: %d datagrams were wrong", run.Way, run.GRO, run.Run, run.Wrong))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	}
	return nil
}

// print writes the tables, each row as the median over its runs with the range of the rate.
func (r UDPReport) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	row("sent by", "GRO", "sent MB/s", "[min-max]", "received MB/s", "lost", "send CPU ms/MB", "receive CPU ms/MB", "send calls/MB", "receive calls/MB")
	for _, g := range udp.Groups(r.Runs) {
		m := func(format string, f func(udp.Run) float64) string {
			median, _, _ := g.Spread(f)
			return fmt.Sprintf(format, median)
		}
		_, least, most := g.Spread(func(r udp.Run) float64 { return r.SentMBS })
		row(g.Way.String(), onOff(g.GRO), m("%.0f", func(r udp.Run) float64 { return r.SentMBS }), fmt.Sprintf("[%.0f-%.0f]", least, most),
			m("%.0f", func(r udp.Run) float64 { return r.RecvMBS }), m("%.1f%%", func(r udp.Run) float64 { return 100 * r.Lost() }),
			m("%.3f", func(r udp.Run) float64 { return r.SendCPU }), m("%.3f", func(r udp.Run) float64 { return r.RecvCPU }),
			m("%.0f", func(r udp.Run) float64 { return r.SendCalls }), m("%.0f", func(r udp.Run) float64 { return r.RecvCalls }))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	row("one QUIC lane", "run", "MB/s", "CPU ms/MB", "datagrams/MB", "send calls/MB", "receive calls/MB", "drops")
	for _, l := range r.Lanes {
		row(l.Name(), fmt.Sprint(l.Run), fmt.Sprintf("%.0f", l.MBS), fmt.Sprintf("%.3f", l.CPU), fmt.Sprintf("%.0f", l.Datagrams),
			fmt.Sprintf("%.0f", l.SendCalls), fmt.Sprintf("%.0f", l.RecvCalls), fmt.Sprint(l.Drops))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	row("pacing by the kernel", "asked", "read back", "measured", "")
	for _, p := range r.Pacings {
		row(p.Option, p.Asked, p.ReadBack, p.Measured, p.Note)
	}
	return t.Flush()
}

func onOff(v bool) string {
	if v {
		return "on"
	}
	return "off"
}
