package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// clusterRun is one run of `cmd/cluster`, from its folder ARM-N.
type clusterRun struct {
	arm     string
	n       int
	holders int // -1 = not known
	*report.Run
}

// clusterTable has a row for each arm and number of holders, and ratios to the first arm, run by run.
func clusterTable(dir string) ([]benchtable.Table, error) {
	runs, err := clusterRuns(dir)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	base := "tcp"
	if !slices.ContainsFunc(runs, func(r clusterRun) bool { return r.arm == base }) {
		base = runs[0].arm
	}
	t := benchtable.Table{Head: []string{"configuration", "holders", "runs", "requests/s", "to " + base,
		"TTFT p50 (ms)", "TTFT p99", "ITL p99",
		"frontend CPU (ms/request)", "to " + base, "worker CPU", "to " + base, "datagrams/token", "drops", "errors",
		"machine busy", "marks"}}
	var seen []string
	for _, r := range runs {
		key := fmt.Sprint(r.arm, " ", r.holders)
		if slices.Contains(seen, key) {
			continue
		}
		seen = append(seen, key)
		of := func(f func(*report.Run) *float64) benchtable.Spread { return benchtable.SpreadOf(figures(runs, r, f)) }
		to := func(f func(*report.Run) *float64) string {
			if r.arm == base {
				return "1"
			}
			return ratioTo(runs, r, base, f).String()
		}
		holders := "?"
		if r.holders >= 0 {
			holders = fmt.Sprint(r.holders)
		}
		t.Add(r.arm, holders, fmt.Sprint(len(figures(runs, r, errorsOf))), span(of(rateOf), 1), to(rateOf),
			span(of(ttft50), 1), span(of(ttft99), 1), span(of(itl99), 1), span(of(frontCPU), 2), to(frontCPU),
			span(of(workerCPU), 2), to(workerCPU),
			span(of(datagrams), 4), span(of(drops), 0), span(of(errorsOf), 0), span(of(busy), 2), marks(runs, r))
	}
	t.Note("Least and most over the runs, of the steady window; drops (RcvbufErrors of the frontend's host) and " +
		"errors of the whole run. " +
		"Ratios are run by run, median and range, whatever the number of holders.")
	return []benchtable.Table{t}, nil
}

// clusterRuns reads the folders ARM-N.
func clusterRuns(dir string) (out []clusterRun, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		cut := strings.LastIndexByte(e.Name(), '-')
		if cut < 0 {
			continue
		}
		n, err := strconv.Atoi(e.Name()[cut+1:])
		if err != nil {
			continue
		}
		r, err := report.Read(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		one := clusterRun{arm: e.Name()[:cut], n: n, holders: -1, Run: r}
		if r.Holders != nil {
			one.holders = *r.Holders
		}
		out = append(out, one)
	}
	// the order of the arms
	slices.SortStableFunc(out, func(a, b clusterRun) int { return strings.Compare(a.StartedAt, b.StartedAt) })
	return out, nil
}

// figures are those of the runs of the same arm and holders.
func figures(runs []clusterRun, as clusterRun, f func(*report.Run) *float64) (out []float64) {
	for _, r := range runs {
		if v := f(r.Run); r.arm == as.arm && r.holders == as.holders && v != nil {
			out = append(out, *v)
		}
	}
	return out
}

// ratioTo compares each of them with the base's run of the same number.
func ratioTo(runs []clusterRun, as clusterRun, base string, f func(*report.Run) *float64) benchtable.Spread {
	var a, b []float64
	for _, r := range runs {
		if r.arm != as.arm || r.holders != as.holders {
			continue
		}
		for _, o := range runs {
			if v, w := f(r.Run), f(o.Run); o.arm == base && o.n == r.n && v != nil && w != nil {
				a, b = append(a, *v), append(b, *w)
			}
		}
	}
	return benchtable.RatioOf(a, b)
}

func marks(runs []clusterRun, as clusterRun) string {
	var out []string
	for _, r := range runs {
		for _, m := range r.Marks {
			if r.arm == as.arm && r.holders == as.holders && !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return strings.Join(out, ", ")
}

// span is the range, or the one value.
func span(s benchtable.Spread, digits int) string {
	text := func(v float64) string { return strconv.FormatFloat(v, 'f', digits, 64) }
	switch {
	case s.N == 0:
		return "-"
	case text(s.Min) == text(s.Max):
		return text(s.Min)
	}
	return text(s.Min) + "-" + text(s.Max)
}

func steady(f func(*report.Window) *float64) func(*report.Run) *float64 {
	return func(r *report.Run) *float64 {
		if r.Steady == nil {
			return nil
		}
		return f(r.Steady)
	}
}

func point(dist func(*report.Window) *report.Dist, f func(*report.Dist) float64) func(*report.Run) *float64 {
	return steady(func(w *report.Window) *float64 {
		if d := dist(w); d != nil {
			return report.Ptr(f(d))
		}
		return nil
	})
}

var (
	ttft = func(w *report.Window) *report.Dist { return w.TTFT }
	itl  = func(w *report.Window) *report.Dist { return w.ITL }
	p50  = func(d *report.Dist) float64 { return d.P50 }
	p99  = func(d *report.Dist) float64 { return d.P99 }

	rateOf    = steady(func(w *report.Window) *float64 { return w.RequestsPerS })
	frontCPU  = steady(func(w *report.Window) *float64 { return w.FrontendCPU })
	workerCPU = steady(func(w *report.Window) *float64 { return w.WorkerCPU })
	busy      = steady(func(w *report.Window) *float64 { return w.MachineBusy })
	ttft50    = point(ttft, p50)
	ttft99    = point(ttft, p99)
	itl99     = point(itl, p99)
)

func datagrams(r *report.Run) *float64 {
	if r.UDP == nil {
		return nil
	}
	return r.UDP.SteadyDatagramsPerToken
}

func drops(r *report.Run) *float64 {
	if r.UDP == nil || r.UDP.RcvbufErrors == nil {
		return nil
	}
	return report.Ptr(float64(*r.UDP.RcvbufErrors))
}

func errorsOf(r *report.Run) *float64 {
	if r.Raw == nil {
		return nil
	}
	return report.Ptr(float64(r.Raw.Errors))
}
