package planebench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// String is the run in a line of progress.
func (r *Run) String() string {
	s := fmt.Sprintf("frontend %.3f + worker %.3f ms a response, %.0f responses/s, %d errors, %d wrong",
		r.Frontend.CPUMS, r.Worker.CPUMS, r.RequestsPerS, r.ErrorsAll, r.Wrong)
	if len(r.Marks) > 0 {
		s += "; " + strings.Join(r.Marks, ", ")
	}
	return s
}

// Print writes the tables for a terminal.
func (r *Report) Print(w io.Writer) error { return benchtable.Print(w, r.Shown()...) }

// Shown is what came out: each arm as the median over its runs, with the range of the CPU figures, then the ratios.
func (r *Report) Shown() []benchtable.Table {
	groups := r.groups()
	var out []benchtable.Table
	if slices.ContainsFunc(groups, func(g *runGroup) bool { return g.runs[0].Gap != "" }) {
		out = append(out, r.gapTable(groups))
	}
	out = append(out, r.armTable(groups), delayTable(groups), rateTable(groups), responseTable(groups),
		wireTable(groups))
	if len(r.Ratios) > 0 {
		out = append(out, r.ratioTable())
	}
	return out
}

// gapTable is the curve of the gap against CPU and delays.
func (r *Report) gapTable(groups []*runGroup) benchtable.Table {
	t := benchtable.Table{Title: "Gap against CPU and delays (ms)", Head: []string{"arm", "gap", "frontend CPU",
		r.toBase(), "worker CPU", "to base", "both", "to base", "records/write",
		"delay p50", "p99", "first p50", "p99", "ITL p50", "p99", "TTFT p50", "p99"}}
	for _, g := range groups {
		gap, perWrite := g.runs[0].Gap, "-"
		if gap == "" {
			gap = "none"
		}
		if !g.peer() {
			perWrite = fmt.Sprintf("%.1f", g.median(func(r *Run) float64 { return r.Worker.RecordsPerWrite }))
		}
		front, worker, total := r.firstRatio(g.name)
		t.Add(g.name, gap, fmt.Sprintf("%.3f", g.median(frontCPU)), front, fmt.Sprintf("%.3f", g.median(workerCPU)),
			worker, fmt.Sprintf("%.3f", g.median(allCPU)), total, perWrite,
			g.ms(delay, p50), g.ms(delay, p99), g.ms(firstDelay, p50), g.ms(firstDelay, p99), g.ms(itl, p50),
			g.ms(itl, p99), g.ms(ttft, p50), g.ms(ttft, p99))
	}
	return t
}

func (r *Report) armTable(groups []*runGroup) benchtable.Table {
	t := benchtable.Table{Title: "CPU (ms a response) and latency (ms)", Head: []string{"arm", "runs", "resp/s",
		"of offered", "frontend", "[min-max]", r.toBase(), "worker", "[min-max]", "to base", "broker",
		"total", "ttft p50", "p99", "itl p50", "p99", "late", "host busy", "marked", "errors", "wrong"}}
	for _, g := range groups {
		front, worker := g.spread(frontCPU), g.spread(workerCPU)
		offered, late := "-", "-"
		if o := g.runs[0].OfferedPerS; o != nil {
			offered = fmt.Sprintf("%.2f", g.median(func(r *Run) float64 { return r.RequestsPerS / *o }))
		}
		busy, broker := "-", "-"
		if g.runs[0].Broker != nil {
			broker = fmt.Sprintf("%.3f", g.median(func(r *Run) float64 { return r.Broker.CPUMS }))
		}
		if !slices.ContainsFunc(g.runs, func(r *Run) bool { return r.HostBusy == nil }) {
			busy = fmt.Sprintf("%.2f", g.median(func(r *Run) float64 { return *r.HostBusy }))
		}
		if g.runs[0].LateShare != nil {
			late = fmt.Sprintf("%.3f", g.median(func(r *Run) float64 { return *r.LateShare }))
		}
		toFront, toWorker, _ := r.firstRatio(g.name)
		t.Add(g.name, fmt.Sprint(len(g.runs)),
			fmt.Sprintf("%.0f", g.median(func(r *Run) float64 { return r.RequestsPerS })), offered,
			fmt.Sprintf("%.3f", front.Median), fmt.Sprintf("[%.3f-%.3f]", front.Min, front.Max), toFront,
			fmt.Sprintf("%.3f", worker.Median), fmt.Sprintf("[%.3f-%.3f]", worker.Min, worker.Max), toWorker,
			broker, fmt.Sprintf("%.3f", g.median(allCPU)), g.ms(ttft, p50), g.ms(ttft, p99), g.ms(itl, p50),
			g.ms(itl, p99),
			late, busy, fmt.Sprint(g.sum(func(r *Run) int { return min(len(r.Marks), 1) })),
			fmt.Sprint(g.sum(func(r *Run) int { return r.ErrorsAll })),
			fmt.Sprint(g.sum(func(r *Run) int { return r.Wrong })))
	}
	return t
}

func delayTable(groups []*runGroup) benchtable.Table {
	t := benchtable.Table{Head: []string{"delivery delay ms", "p50", "p99", "p99.9", "max", "first p50", "p99", "p99.9",
		"max"}}
	for _, g := range groups {
		t.Add(g.name, g.ms(delay, p50), g.ms(delay, p99), g.ms(delay, p999), g.ms(delay, most), g.ms(firstDelay, p50),
			g.ms(firstDelay, p99), g.ms(firstDelay, p999), g.ms(firstDelay, most))
	}
	return t
}

func rateTable(groups []*runGroup) benchtable.Table {
	t := benchtable.Table{Head: []string{"per second", "rec/write", "rec/read", "worker writes", "reads", "switches",
		"frontend writes", "reads", "wakes", "sink calls", "switches", "stalls"}}
	for _, g := range groups {
		n := func(f func(*Run) float64) string { return fmt.Sprintf("%.0f", g.median(f)) }
		if g.peer() {
			none := make([]string, 11)
			for i := range none {
				none[i] = "-"
			}
			none[4], none[9] = n(func(r *Run) float64 { return r.Worker.SwitchesPerS }),
				n(func(r *Run) float64 { return r.Frontend.SwitchesPerS })
			t.Add(append([]string{g.name}, none...)...)
			continue
		}
		t.Add(g.name, fmt.Sprintf("%.1f", g.median(func(r *Run) float64 { return r.Worker.RecordsPerWrite })),
			fmt.Sprintf("%.1f", g.median(func(r *Run) float64 { return r.Frontend.RecordsPerRead })),
			n(func(r *Run) float64 { return r.Worker.WritesPerS }),
			n(func(r *Run) float64 { return r.Worker.ReadsPerS }),
			n(func(r *Run) float64 { return r.Worker.SwitchesPerS }),
			n(func(r *Run) float64 { return r.Frontend.WritesPerS }),
			n(func(r *Run) float64 { return r.Frontend.ReadsPerS }),
			n(func(r *Run) float64 { return r.Frontend.WakesPerS }),
			n(func(r *Run) float64 { return r.Frontend.SinkCallsPerS }),
			n(func(r *Run) float64 { return r.Frontend.SwitchesPerS }),
			n(func(r *Run) float64 { return float64(r.Worker.WindowStalls) }))
	}
	return t
}

func responseTable(groups []*runGroup) benchtable.Table {
	t := benchtable.Table{Head: []string{"per response", "frontend mallocs", "bytes", "sys ms", "worker mallocs",
		"bytes", "sys ms", "bytes on the plane", "frontend MiB", "worker MiB"}}
	for _, g := range groups {
		n := func(f func(*Run) float64) string { return fmt.Sprintf("%.0f", g.median(f)) }
		m := func(f func(*Run) float64) string { return fmt.Sprintf("%.3f", g.median(f)) }
		plane := "-"
		if !g.peer() {
			plane = n(func(r *Run) float64 { return r.Frontend.PlaneBytes })
		}
		t.Add(g.name, n(func(r *Run) float64 { return r.Frontend.Mallocs }),
			n(func(r *Run) float64 { return r.Frontend.AllocBytes }),
			m(func(r *Run) float64 { return r.Frontend.SystemMS }),
			n(func(r *Run) float64 { return r.Worker.Mallocs }), n(func(r *Run) float64 { return r.Worker.AllocBytes }),
			m(func(r *Run) float64 { return r.Worker.SystemMS }),
			plane, n(func(r *Run) float64 { return r.Frontend.rss() }),
			n(func(r *Run) float64 { return r.Worker.rss() }))
	}
	return t
}

func wireTable(groups []*runGroup) benchtable.Table {
	t := benchtable.Table{Head: []string{"wire", "datagrams/token", "frontend recv calls/MiB", "send calls/MiB",
		"worker recv calls/MiB", "send calls/MiB", "socket drops", "library drops", "packets lost"}}
	for _, g := range groups {
		if g.peer() {
			continue
		}
		n := func(f func(*Run) float64) string { return fmt.Sprintf("%.0f", g.median(f)) }
		all := func(f func(WireFigures) uint64) string {
			return fmt.Sprint(g.sum(func(r *Run) int { return int(f(r.Frontend.Wire) + f(r.Worker.Wire)) }))
		}
		t.Add(g.name, fmt.Sprintf("%.4f", g.median(func(r *Run) float64 { return r.Frontend.Wire.DatagramsPerToken })),
			n(func(r *Run) float64 { return r.Frontend.Wire.RecvCallsPerMiB }),
			n(func(r *Run) float64 { return r.Frontend.Wire.SendCallsPerMiB }),
			n(func(r *Run) float64 { return r.Worker.Wire.RecvCallsPerMiB }),
			n(func(r *Run) float64 { return r.Worker.Wire.SendCallsPerMiB }),
			all(func(w WireFigures) uint64 { return w.SocketDrops }),
			all(func(w WireFigures) uint64 { return w.LibraryDrops }),
			all(func(w WireFigures) uint64 { return w.PacketsLost }))
	}
	return t
}

func (r *Report) ratioTable() benchtable.Table {
	t := benchtable.Table{Head: []string{"CPU of one / of the other", "pairs", "frontend", "worker", "total",
		"TTFT p99 ms more", "left out", "behind"}}
	for _, x := range r.Ratios {
		name, left := x.Arm+" / "+x.Base, fmt.Sprint(x.LeftOut)
		if x.Total.N == 0 {
			t.Add(name, "0", "-", "-", "-", "-", left, "0")
			continue
		}
		t.Add(name, fmt.Sprint(x.Total.N), x.Frontend.String(), x.Worker.String(), x.Total.String(),
			x.TTFTP99.More("%+.1f"), left, fmt.Sprint(x.Behind))
	}
	t.Note("Median and range over the pairs, one of each repetition. Left out: pairs in which a run is marked. " +
		"Behind: pairs that count although the first arm was behind the load, which makes it look cheaper, so its " +
		"figures are \"at least\".")
	return t
}

// firstBase is what the first ratio of each arm is to, "" when that is not the same for all.
func (r *Report) firstBase() string {
	base := ""
	seen := map[string]bool{}
	for _, x := range r.Ratios {
		if seen[x.Arm] {
			continue
		}
		seen[x.Arm] = true
		if base != "" && base != x.Base {
			return ""
		}
		base = x.Base
	}
	return base
}

// toBase is the head of a column of ratios.
func (r *Report) toBase() string {
	if base := r.firstBase(); base != "" {
		return "to " + base
	}
	return "to base"
}

// firstRatio is the first ratio of an arm, and says to what where that is not the same for all.
func (r *Report) firstRatio(name string) (front, worker, total string) {
	for _, x := range r.Ratios {
		switch {
		case x.Arm != name:
			continue
		case x.Total.N == 0:
			return "-", "-", "-"
		case r.firstBase() == "":
			return x.Frontend.String() + " of " + x.Base, x.Worker.String(), x.Total.String()
		}
		return x.Frontend.String(), x.Worker.String(), x.Total.String()
	}
	return "1", "1", "1"
}

// rss is the largest resident set of a side's processes, in MiB.
func (s Side) rss() float64 {
	var n int64
	for _, p := range s.Processes {
		n = max(n, p.RSSPeakBytes)
	}
	return float64(n) / (1 << 20)
}

// runGroup is the runs of one arm.
type runGroup struct {
	name string
	runs []*Run
}

func (r *Report) groups() (out []*runGroup) {
	by := make(map[string]*runGroup)
	for _, run := range r.Runs {
		name := run.arm().String()
		if by[name] == nil {
			by[name] = &runGroup{name: name}
			out = append(out, by[name])
		}
		by[name].runs = append(by[name].runs, run)
	}
	return out
}

func (g *runGroup) peer() bool { return g.runs[0].Peer }

func (g *runGroup) spread(f func(*Run) float64) benchtable.Spread {
	var v []float64
	for _, r := range g.runs {
		v = append(v, f(r))
	}
	return benchtable.SpreadOf(v)
}

func (g *runGroup) median(f func(*Run) float64) float64 { return g.spread(f).Median }

func (g *runGroup) sum(f func(*Run) int) (n int) {
	for _, r := range g.runs {
		n += f(r)
	}
	return n
}

func frontCPU(r *Run) float64  { return r.Frontend.CPUMS }
func workerCPU(r *Run) float64 { return r.Worker.CPUMS }
func allCPU(r *Run) float64    { return r.TotalMS }

func ttft(r *Run) *report.Dist       { return r.TTFT }
func itl(r *Run) *report.Dist        { return r.ITL }
func delay(r *Run) *report.Dist      { return r.Delay }
func firstDelay(r *Run) *report.Dist { return r.FirstDelay }

func p50(d *report.Dist) float64  { return d.P50 }
func p99(d *report.Dist) float64  { return d.P99 }
func p999(d *report.Dist) float64 { return d.P999 }
func most(d *report.Dist) float64 { return d.Max }

// ms is the median over the runs of one point of a distribution, "-" when a run has none.
func (g *runGroup) ms(dist func(*Run) *report.Dist, point func(*report.Dist) float64) string {
	var v []float64
	for _, r := range g.runs {
		d := dist(r)
		if d == nil {
			return "-"
		}
		v = append(v, point(d))
	}
	return fmt.Sprintf("%.2f", benchtable.SpreadOf(v).Median)
}
