package httpbench

import (
	"fmt"
	"io"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// String is the run in a line of progress.
func (r *Run) String() string {
	s := fmt.Sprintf("frontend %.3f", r.Frontend.CPUMS)
	if r.Worker != nil {
		s += fmt.Sprintf(" + worker %.3f", r.Worker.CPUMS)
	}
	s += fmt.Sprintf(" ms a request, %.0f requests/s of %.0f", r.RequestsPerS, r.OfferedPerS)
	if r.TTFT != nil {
		s += fmt.Sprintf(", TTFT p99 %.1f ms", r.TTFT.P99)
	}
	s += fmt.Sprintf(", %d errors, %d wrong", r.ErrorsAll, r.Wrong)
	if r.Invalid != "" {
		s += "; " + r.Invalid
	}
	if len(r.Marks) > 0 {
		s += "; " + strings.Join(r.Marks, ", ")
	}
	return s
}

// runGroup is the runs of one arm at one number of open responses.
type runGroup struct {
	arm     string
	streams int
	runs    []*Run
}

func (r *Report) groups() (out []*runGroup) {
	type key struct {
		arm     string
		streams int
	}
	by := map[key]*runGroup{}
	for _, run := range r.Runs {
		k := key{run.Arm, run.Streams}
		if by[k] == nil {
			by[k] = &runGroup{arm: run.Arm, streams: run.Streams}
			out = append(out, by[k])
		}
		by[k].runs = append(by[k].runs, run)
	}
	return out
}

// of is the spread of a figure; runs without it are left out.
func (g *runGroup) of(f func(*Run) (float64, bool)) benchtable.Spread {
	var v []float64
	for _, r := range g.runs {
		if x, ok := f(r); ok {
			v = append(v, x)
		}
	}
	return benchtable.SpreadOf(v)
}

// cell is the median of a figure, "-" where no run has it.
func (g *runGroup) cell(format string, f func(*Run) (float64, bool)) string {
	s := g.of(f)
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf(format, s.Median)
}

// ranged are the median and the range.
func (g *runGroup) ranged(f func(*Run) (float64, bool)) []string {
	s := g.of(f)
	if s.N == 0 {
		return []string{"-", "-"}
	}
	return []string{fmt.Sprintf("%.3f", s.Median), fmt.Sprintf("[%.3f-%.3f]", s.Min, s.Max)}
}

func (g *runGroup) sum(f func(*Run) int) string {
	n := 0
	for _, r := range g.runs {
		n += f(r)
	}
	return fmt.Sprint(n)
}

func always(f func(*Run) float64) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) { return f(r), true }
}

func point(dist func(*Run) *report.Dist, f func(*report.Dist) float64) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		d := dist(r)
		if d == nil {
			return 0, false
		}
		return f(d), true
	}
}

func known(p *float64) (float64, bool) {
	if p == nil {
		return 0, false
	}
	return *p, true
}

const mib, kib = 1 << 20, 1 << 10

// Print writes the tables for a terminal.
func (r *Report) Print(w io.Writer) error { return benchtable.Print(w, r.Shown()...) }

// Shown is what came out: each arm as the median over its runs, with the range of the CPU figures, then the ratios.
func (r *Report) Shown() []benchtable.Table {
	out := []benchtable.Table{r.armTable(), r.tokenTable()}
	for _, t := range []benchtable.Table{r.ratioTable(), r.addedTable(), r.growthTable()} {
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func workerOf(f func(*Side) float64) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		if r.Worker == nil {
			return 0, false
		}
		return f(r.Worker), true
	}
}

func (r *Report) armTable() benchtable.Table {
	ttft, itl := func(r *Run) *report.Dist { return r.TTFT }, func(r *Run) *report.Dist { return r.ITL }
	p50, p99 := func(d *report.Dist) float64 { return d.P50 }, func(d *report.Dist) float64 { return d.P99 }
	t := benchtable.Table{Title: "CPU (ms a request) and latency (ms)", Head: []string{"arm", "open", "runs", "req/s",
		"of offered", "frontend", "[min-max]", "to " + LanewayTCP, "worker", "[min-max]", "to " + LanewayTCP,
		"ttft p50", "p99", "itl p99", "marked", "errors", "wrong"}}
	for _, g := range r.groups() {
		front, worker := r.toOwn(g)
		cells := []string{g.arm, fmt.Sprint(g.streams), fmt.Sprint(len(g.runs)),
			g.cell("%.0f", always(func(r *Run) float64 { return r.RequestsPerS })),
			g.cell("%.2f", always(func(r *Run) float64 { return r.RequestsPerS / r.OfferedPerS }))}
		cells = append(append(cells, g.ranged(always(func(r *Run) float64 { return r.Frontend.CPUMS }))...), front)
		cells = append(append(cells, g.ranged(workerOf(func(s *Side) float64 { return s.CPUMS }))...), worker)
		t.Add(append(cells, g.cell("%.2f", point(ttft, p50)), g.cell("%.2f", point(ttft, p99)),
			g.cell("%.2f", point(itl, p99)),
			g.sum(func(r *Run) int { return min(len(r.Marks), 1) }), g.sum(func(r *Run) int { return r.ErrorsAll }),
			g.sum(func(r *Run) int { return r.Wrong }))...)
	}
	return t
}

// toOwn are the ratios of an arm to LanewayTCP.
func (r *Report) toOwn(g *runGroup) (front, worker string) {
	if g.arm == LanewayTCP {
		return "1", "1"
	}
	for _, x := range r.Ratios {
		if x.Arm == g.arm && x.Base == LanewayTCP && x.Streams == g.streams {
			return x.Frontend.String(), x.Worker.String()
		}
	}
	return "-", "-"
}

func (r *Report) tokenTable() benchtable.Table {
	t := benchtable.Table{Title: "CPU a token, and memory", Head: []string{"arm", "open", "frontend us/token",
		"of it system", "worker us/token", "engines alone", "client us/token", "frontend peak MiB",
		"KiB an open response",
		"worker peak MiB", "passes missed", "host busy", "client late p99 ms"}}
	for _, g := range r.groups() {
		t.Add(g.arm, fmt.Sprint(g.streams), g.cell("%.2f", always(func(r *Run) float64 { return r.Frontend.TokenUS })),
			g.cell("%.2f",
				always(func(r *Run) float64 {
					return r.Frontend.TokenUS * r.Frontend.SystemMS / max(r.Frontend.CPUMS,
						1e-9)
				})),
			g.cell("%.2f", workerOf(func(s *Side) float64 { return s.TokenUS })),
			g.cell("%.2f", func(r *Run) (float64, bool) {
				if r.Engines == nil {
					return 0, false
				}
				return r.Engines.TokenUS, true
			}),
			g.cell("%.2f", always(func(r *Run) float64 { return r.Client.TokenUS })),
			g.cell("%.0f",
				func(r *Run) (float64, bool) { return float64(r.Frontend.RSSPeak) / mib, r.Frontend.RSSPeak > 0 }),
			g.cell("%.1f",
				func(r *Run) (float64, bool) { return r.Frontend.RSSPerOpen / kib, r.Frontend.RSSPerOpen != 0 }),
			g.cell("%.0f", workerOf(func(s *Side) float64 { return float64(s.RSSPeak) / mib })),
			g.cell("%.3f", func(r *Run) (float64, bool) { return known(r.MissedShare) }),
			g.cell("%.2f", func(r *Run) (float64, bool) { return known(r.HostBusy) }),
			g.cell("%.2f", func(r *Run) (float64, bool) { return known(r.ClientLate) }))
	}
	return t
}

func (r *Report) ratioTable() benchtable.Table {
	t := benchtable.Table{Head: []string{"CPU of one / of the other", "open", "pairs", "frontend", "worker", "both",
		"TTFT p99 ms more", "left out", "behind"}}
	for _, x := range r.Ratios {
		t.Add(x.Arm+" / "+x.Base, fmt.Sprint(x.Streams), fmt.Sprint(x.Frontend.N), x.Frontend.String(),
			x.Worker.String(), x.Total.String(), x.TTFTP99.More("%+.1f"), fmt.Sprint(x.LeftOut), fmt.Sprint(x.Behind))
	}
	t.Note("Median and range over the pairs, one of each repetition. " +
		"Left out: pairs in which a run is marked. Behind: pairs that count although the first arm was behind the " +
		"load, which makes it look cheaper, so its figures are \"at least\".")
	return t
}

func (r *Report) addedTable() benchtable.Table {
	t := benchtable.Table{Head: []string{"added to the frontend over " + InProcess, "open", "repetitions", "ratio",
		"the one, ms a request", "the other", "left out", "the other added nothing"}}
	for _, x := range r.Added {
		t.Add(x.Arm+" / "+x.Bare, fmt.Sprint(x.Streams), fmt.Sprint(x.Ratio.N), x.Ratio.String(), x.OwnMS.More("%.3f"),
			x.BareMS.More("%.3f"), fmt.Sprint(x.LeftOut), fmt.Sprint(x.NoBase))
	}
	return t
}

func (r *Report) growthTable() benchtable.Table {
	t := benchtable.Table{Head: []string{"CPU a token at the same tokens a second", "open / open", "pairs", "frontend",
		"frontend and workers", "left out"}}
	for _, x := range r.Growth {
		t.Add(x.Arm, fmt.Sprintf("%d / %d", x.To, x.From), fmt.Sprint(x.Frontend.N), x.Frontend.String(),
			x.Total.String(), fmt.Sprint(x.LeftOut))
	}
	return t
}
