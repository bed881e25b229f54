package planebench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/laneway-ai/laneway/internal/report"
)

// String is the run in a line of progress.
func (r *Run) String() string {
	s := fmt.Sprintf("frontend %.3f + worker %.3f ms a response, %.0f responses/s, %d errors, %d wrong", r.Frontend.CPUMS, r.Worker.CPUMS, r.RequestsPerS, r.ErrorsAll, r.Wrong)
	if len(r.Marks) > 0 {
		s += "; " + strings.Join(r.Marks, ", ")
	}
	return s
}

// Print writes the tables: each arm as the median over its runs, with the range of the CPU figures, then the ratios.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }

	row("arm", "runs", "resp/s", "of offered", "frontend ms", "[min-max]", "worker ms", "[min-max]", "broker ms", "total ms", "ttft p50", "p99", "itl p50", "p99", "late", "host busy", "marked", "errors", "wrong")
	groups := r.groups()
	for _, g := range groups {
		front, worker := g.spread(func(r *Run) float64 { return r.Frontend.CPUMS }), g.spread(func(r *Run) float64 { return r.Worker.CPUMS })
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
		row(g.name, fmt.Sprint(len(g.runs)), fmt.Sprintf("%.0f", g.median(func(r *Run) float64 { return r.RequestsPerS })), offered,
			fmt.Sprintf("%.3f", front.Median), fmt.Sprintf("[%.3f-%.3f]", front.Min, front.Max),
			fmt.Sprintf("%.3f", worker.Median), fmt.Sprintf("[%.3f-%.3f]", worker.Min, worker.Max),
			broker, fmt.Sprintf("%.3f", g.median(func(r *Run) float64 { return r.TotalMS })),
			g.ms(func(r *Run) *report.Dist { return r.TTFT }, p50), g.ms(func(r *Run) *report.Dist { return r.TTFT }, p99),
			g.ms(func(r *Run) *report.Dist { return r.ITL }, p50), g.ms(func(r *Run) *report.Dist { return r.ITL }, p99),
			late, busy, fmt.Sprint(g.sum(func(r *Run) int { return min(len(r.Marks), 1) })), fmt.Sprint(g.sum(func(r *Run) int { return r.ErrorsAll })), fmt.Sprint(g.sum(func(r *Run) int { return r.Wrong })))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	row("delivery delay ms", "p50", "p99", "p99.9", "max", "first p50", "p99", "p99.9", "max")
	all, first := func(r *Run) *report.Dist { return r.Delay }, func(r *Run) *report.Dist { return r.FirstDelay }
	for _, g := range groups {
		row(g.name, g.ms(all, p50), g.ms(all, p99), g.ms(all, p999), g.ms(all, most), g.ms(first, p50), g.ms(first, p99), g.ms(first, p999), g.ms(first, most))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	row("per second", "rec/write", "rec/read", "worker writes", "reads", "switches", "frontend writes", "reads", "wakes", "sink calls", "switches", "stalls")
	for _, g := range groups {
		n := func(f func(*Run) float64) string { return fmt.Sprintf("%.0f", g.median(f)) }
		if g.peer() {
			none := make([]string, 11)
			for i := range none {
				none[i] = "-"
			}
			none[4], none[9] = n(func(r *Run) float64 { return r.Worker.SwitchesPerS }), n(func(r *Run) float64 { return r.Frontend.SwitchesPerS })
			row(append([]string{g.name}, none...)...)
			continue
		}
		row(g.name, fmt.Sprintf("%.1f", g.median(func(r *Run) float64 { return r.Worker.RecordsPerWrite })), fmt.Sprintf("%.1f", g.median(func(r *Run) float64 { return r.Frontend.RecordsPerRead })),
			n(func(r *Run) float64 { return r.Worker.WritesPerS }), n(func(r *Run) float64 { return r.Worker.ReadsPerS }), n(func(r *Run) float64 { return r.Worker.SwitchesPerS }),
			n(func(r *Run) float64 { return r.Frontend.WritesPerS }), n(func(r *Run) float64 { return r.Frontend.ReadsPerS }), n(func(r *Run) float64 { return r.Frontend.WakesPerS }),
			n(func(r *Run) float64 { return r.Frontend.SinkCallsPerS }), n(func(r *Run) float64 { return r.Frontend.SwitchesPerS }),
			n(func(r *Run) float64 { return float64(r.Worker.WindowStalls) }))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	row("per response", "frontend mallocs", "bytes", "sys ms", "worker mallocs", "bytes", "sys ms", "bytes on the plane", "frontend MiB", "worker MiB")
	for _, g := range groups {
		n := func(f func(*Run) float64) string { return fmt.Sprintf("%.0f", g.median(f)) }
		m := func(f func(*Run) float64) string { return fmt.Sprintf("%.3f", g.median(f)) }
		plane := "-"
		if !g.peer() {
			plane = n(func(r *Run) float64 { return r.Frontend.PlaneBytes })
		}
		row(g.name, n(func(r *Run) float64 { return r.Frontend.Mallocs }), n(func(r *Run) float64 { return r.Frontend.AllocBytes }), m(func(r *Run) float64 { return r.Frontend.SystemMS }),
			n(func(r *Run) float64 { return r.Worker.Mallocs }), n(func(r *Run) float64 { return r.Worker.AllocBytes }), m(func(r *Run) float64 { return r.Worker.SystemMS }),
			plane, n(func(r *Run) float64 { return r.Frontend.rss() }), n(func(r *Run) float64 { return r.Worker.rss() }))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	row("wire", "datagrams/token", "frontend recv calls/MiB", "send calls/MiB", "worker recv calls/MiB", "send calls/MiB", "socket drops", "library drops", "packets lost")
	for _, g := range groups {
		if g.peer() {
			continue
		}
		n := func(f func(*Run) float64) string { return fmt.Sprintf("%.0f", g.median(f)) }
		all := func(f func(WireFigures) uint64) string {
			return fmt.Sprint(g.sum(func(r *Run) int { return int(f(r.Frontend.Wire) + f(r.Worker.Wire)) }))
		}
		row(g.name, fmt.Sprintf("%.4f", g.median(func(r *Run) float64 { return r.Frontend.Wire.DatagramsPerToken })),
			n(func(r *Run) float64 { return r.Frontend.Wire.RecvCallsPerMiB }), n(func(r *Run) float64 { return r.Frontend.Wire.SendCallsPerMiB }),
			n(func(r *Run) float64 { return r.Worker.Wire.RecvCallsPerMiB }), n(func(r *Run) float64 { return r.Worker.Wire.SendCallsPerMiB }),
			all(func(w WireFigures) uint64 { return w.SocketDrops }), all(func(w WireFigures) uint64 { return w.LibraryDrops }),
			all(func(w WireFigures) uint64 { return w.PacketsLost }))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	for _, x := range r.Ratios {
		if x.Total.N == 0 {
			fmt.Fprintf(w, "\nCPU %s / %s: no pair to compare, in all %d a run is marked", x.Arm, x.Base, x.LeftOut)
			continue
		}
		fmt.Fprintf(w, "\nCPU %s / %s, in each of %d pairs: frontend %s, worker %s, total %s", x.Arm, x.Base, x.Total.N, x.Frontend, x.Worker, x.Total)
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
	_, err := fmt.Fprintln(w)
	return err
}

func (s Spread) String() string { return fmt.Sprintf("%.2f [%.2f-%.2f]", s.Median, s.Min, s.Max) }

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

func (g *runGroup) spread(f func(*Run) float64) Spread {
	var v []float64
	for _, r := range g.runs {
		v = append(v, f(r))
	}
	return SpreadOf(v)
}

func (g *runGroup) median(f func(*Run) float64) float64 { return g.spread(f).Median }

func (g *runGroup) sum(f func(*Run) int) (n int) {
	for _, r := range g.runs {
		n += f(r)
	}
	return n
}

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
	return fmt.Sprintf("%.2f", SpreadOf(v).Median)
}
