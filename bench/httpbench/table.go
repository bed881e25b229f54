package httpbench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/laneway-ai/laneway/internal/planebench"
	"github.com/laneway-ai/laneway/internal/report"
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
func (g *runGroup) of(f func(*Run) (float64, bool)) Spread {
	var v []float64
	for _, r := range g.runs {
		if x, ok := f(r); ok {
			v = append(v, x)
		}
	}
	return planebench.SpreadOf(v)
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

// Print writes the tables: each arm as the median over its runs, with the range of the CPU figures, then the ratios.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	worker := func(f func(*Side) float64) func(*Run) (float64, bool) {
		return func(r *Run) (float64, bool) {
			if r.Worker == nil {
				return 0, false
			}
			return f(r.Worker), true
		}
	}
	ttft, itl := func(r *Run) *report.Dist { return r.TTFT }, func(r *Run) *report.Dist { return r.ITL }
	p50, p99 := func(d *report.Dist) float64 { return d.P50 }, func(d *report.Dist) float64 { return d.P99 }

	row("arm", "open", "runs", "req/s", "of offered", "frontend ms/req", "[min-max]", "worker ms/req", "[min-max]", "ttft p50", "p99", "itl p99", "marked", "errors", "wrong")
	groups := r.groups()
	for _, g := range groups {
		cells := []string{g.arm, fmt.Sprint(g.streams), fmt.Sprint(len(g.runs)), g.cell("%.0f", always(func(r *Run) float64 { return r.RequestsPerS })),
			g.cell("%.2f", always(func(r *Run) float64 { return r.RequestsPerS / r.OfferedPerS }))}
		cells = append(cells, g.ranged(always(func(r *Run) float64 { return r.Frontend.CPUMS }))...)
		cells = append(cells, g.ranged(worker(func(s *Side) float64 { return s.CPUMS }))...)
		row(append(cells, g.cell("%.2f", point(ttft, p50)), g.cell("%.2f", point(ttft, p99)), g.cell("%.2f", point(itl, p99)),
			g.sum(func(r *Run) int { return min(len(r.Marks), 1) }), g.sum(func(r *Run) int { return r.ErrorsAll }), g.sum(func(r *Run) int { return r.Wrong }))...)
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	row("arm", "open", "frontend us/token", "of it system", "worker us/token", "engines alone", "client us/token", "frontend peak MiB", "KiB an open response", "worker peak MiB", "passes missed", "host busy", "client late p99 ms")
	for _, g := range groups {
		row(g.arm, fmt.Sprint(g.streams), g.cell("%.2f", always(func(r *Run) float64 { return r.Frontend.TokenUS })),
			g.cell("%.2f", always(func(r *Run) float64 { return r.Frontend.TokenUS * r.Frontend.SystemMS / max(r.Frontend.CPUMS, 1e-9) })),
			g.cell("%.2f", worker(func(s *Side) float64 { return s.TokenUS })),
			g.cell("%.2f", func(r *Run) (float64, bool) {
				if r.Engines == nil {
					return 0, false
				}
				return r.Engines.TokenUS, true
			}),
			g.cell("%.2f", always(func(r *Run) float64 { return r.Client.TokenUS })),
			g.cell("%.0f", func(r *Run) (float64, bool) { return float64(r.Frontend.RSSPeak) / mib, r.Frontend.RSSPeak > 0 }),
			g.cell("%.1f", func(r *Run) (float64, bool) { return r.Frontend.RSSPerOpen / kib, r.Frontend.RSSPerOpen != 0 }),
			g.cell("%.0f", worker(func(s *Side) float64 { return float64(s.RSSPeak) / mib })),
			g.cell("%.3f", func(r *Run) (float64, bool) { return known(r.MissedShare) }),
			g.cell("%.2f", func(r *Run) (float64, bool) { return known(r.HostBusy) }),
			g.cell("%.2f", func(r *Run) (float64, bool) { return known(r.ClientLate) }))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return r.printRatios(w)
}

func (r *Report) printRatios(w io.Writer) error {
	for _, x := range r.Ratios {
		fmt.Fprintf(w, "\nCPU %s / %s at %d open: ", x.Arm, x.Base, x.Streams)
		if x.Frontend.N == 0 {
			fmt.Fprintf(w, "no pair to compare, in all %d a run is marked", x.LeftOut)
			continue
		}
		fmt.Fprintf(w, "in each of %d pairs: frontend %s, ", x.Frontend.N, x.Frontend)
		if x.Worker.N > 0 {
			fmt.Fprintf(w, "worker %s, ", x.Worker)
		}
		fmt.Fprintf(w, "both %s", x.Total)
		if x.TTFTP99.N > 0 {
			fmt.Fprintf(w, "; TTFT p99 %+.1f [%+.1f to %+.1f] ms", x.TTFTP99.Median, x.TTFTP99.Min, x.TTFTP99.Max)
		}
		if x.LeftOut > 0 {
			fmt.Fprintf(w, " (%d pairs left out, a run is marked)", x.LeftOut)
		}
		if x.Behind > 0 {
			fmt.Fprintf(w, " (at least: in %d pairs %s was behind the load, which makes it look cheaper)", x.Behind, x.Arm)
		}
	}
	for _, x := range r.Added {
		fmt.Fprintf(w, "\nadded to the frontend over %s at %d open, %s / %s: ", InProcess, x.Streams, x.Arm, x.Bare)
		if x.Ratio.N == 0 {
			fmt.Fprintf(w, "nothing to compare: %d repetitions left out, a run is marked; in %d the bare connection added nothing", x.LeftOut, x.NoBase)
			continue
		}
		fmt.Fprintf(w, "in each of %d repetitions %s (%.3f [%.3f-%.3f] and %.3f [%.3f-%.3f] ms a request)", x.Ratio.N, x.Ratio,
			x.OwnMS.Median, x.OwnMS.Min, x.OwnMS.Max, x.BareMS.Median, x.BareMS.Min, x.BareMS.Max)
		if x.LeftOut+x.NoBase > 0 {
			fmt.Fprintf(w, " (%d left out, a run is marked; %d where the bare connection added nothing)", x.LeftOut, x.NoBase)
		}
	}
	for _, x := range r.Growth {
		fmt.Fprintf(w, "\nCPU a token of %s, %d open / %d open at the same tokens a second: ", x.Arm, x.To, x.From)
		if x.Frontend.N == 0 {
			fmt.Fprintf(w, "no pair to compare, in all %d a run is marked", x.LeftOut)
			continue
		}
		fmt.Fprintf(w, "in each of %d pairs: frontend %s, frontend and workers %s", x.Frontend.N, x.Frontend, x.Total)
		if x.LeftOut > 0 {
			fmt.Fprintf(w, " (%d pairs left out, a run is marked)", x.LeftOut)
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
