package analysis

import (
	"math"
	"slices"
	"strconv"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/chart"
)

// Metric is one figure of a run.
type Metric struct {
	Name, Unit string
	// HigherIsBetter is false for what should be small.
	HigherIsBetter bool
	// Of reads it, false when it was not measured.
	Of func(*Run) (float64, bool)
	// Text writes it without its unit.
	Text func(float64) string
}

func ofWindow(of func(*report.Window) *float64) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		if p := of(r.Window); p != nil {
			return *p, true
		}
		return 0, false
	}
}

func ofDist(dist func(*report.Window) *report.Dist, stat func(*report.Dist) float64) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		if d := dist(r.Window); d != nil {
			return stat(d), true
		}
		return 0, false
	}
}

func p50(d *report.Dist) float64            { return d.P50 }
func p99(d *report.Dist) float64            { return d.P99 }
func ttft(w *report.Window) *report.Dist    { return w.TTFT }
func itl(w *report.Window) *report.Dist     { return w.ITL }
func gap(w *report.Window) *report.Dist     { return w.ICL }
func latency(w *report.Window) *report.Dist { return w.Latency }
func rate(w *report.Window) *float64        { return w.RequestsPerS }
func tokenRate(w *report.Window) *float64   { return w.OutputTokensPer }
func frontendCPU(w *report.Window) *float64 { return w.FrontendCPU }
func drops(r *Run) (v float64, measured bool) {
	if u := r.Report.UDP; u != nil && u.RcvbufErrors != nil {
		return float64(*u.RcvbufErrors), true
	}
	return 0, false
}

// The metrics. Rates, latencies and CPU are the window's, drops and errors are the whole run's.
var (
	metricRate    = Metric{"requests/s", "", true, ofWindow(rate), rateText}
	metricTTFT50  = Metric{"TTFT p50", "ms", false, ofDist(ttft, p50), msText}
	metricTTFT99  = Metric{"TTFT p99", "ms", false, ofDist(ttft, p99), msText}
	metricITL50   = Metric{"ITL p50", "ms", false, ofDist(itl, p50), msText}
	metricITL99   = Metric{"ITL p99", "ms", false, ofDist(itl, p99), msText}
	metricGap50   = Metric{"chunk gap p50", "ms", false, ofDist(gap, p50), msText}
	metricGap99   = Metric{"chunk gap p99", "ms", false, ofDist(gap, p99), msText}
	metricLatency = Metric{"latency p50", "ms", false, ofDist(latency, p50), msText}
	metricCPU     = Metric{"frontend CPU", "ms/request", false, ofWindow(frontendCPU), msText}
	metricDrops   = Metric{"drops", "", false, drops, countText}
	// metricReference counts holders by the reference's rule.
	metricReference = Metric{"by the reference", "", false,
		func(r *Run) (float64, bool) { return float64(r.Reference), r.Reference >= 0 }, countText}
	metricErrors = Metric{"errors", "", false, func(r *Run) (float64, bool) { return float64(r.errors()), true },
		countText}
)

// tableMetrics are the columns of the table, as in the reference document.
var tableMetrics = []Metric{metricRate, metricTTFT50, metricTTFT99, metricITL99, metricCPU, metricDrops, metricErrors}

// comparedMetrics are what Compare looks at.
var comparedMetrics = []Metric{metricRate, metricTTFT50, metricTTFT99, metricITL50, metricITL99, metricLatency,
	metricCPU}

// beside adds the chunk gaps to metrics where a run is marked bundled: there ITL alone says little.
func beside(metrics []Metric, runs []*Run) []Metric {
	if !slices.ContainsFunc(runs, (*Run).bundled) {
		return metrics
	}
	at := 1 + slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == metricITL99.Name })
	return slices.Insert(slices.Clone(metrics), at, metricGap50, metricGap99)
}

// bundled tells whether several tokens came in one chunk.
func (r *Run) bundled() bool { return r.Report.Marked(report.MarkBundled) }

// Range is a metric over several runs.
type Range struct {
	Min, Median, Max float64
	N                int // runs that measured it
}

// rangeOf is the metric's range over runs.
func rangeOf(m Metric, runs []*Run) Range {
	var v []float64
	for _, r := range runs {
		if x, ok := m.Of(r); ok {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return Range{}
	}
	slices.Sort(v)
	return Range{Min: v[0], Median: (v[(len(v)-1)/2] + v[len(v)/2]) / 2, Max: v[len(v)-1], N: len(v)}
}

// text writes the range; one value when both ends read the same, "-" when nothing was measured.
func (r Range) text(m Metric) string {
	if r.N == 0 {
		return "-"
	}
	lo, hi := m.Text(r.Min), m.Text(r.Max)
	if lo == hi {
		return lo
	}
	return lo + "-" + hi
}

func rateText(v float64) string {
	if v >= 100 {
		return chart.Thousands(strconv.FormatFloat(v, 'f', 0, 64))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

func countText(v float64) string { return chart.Thousands(strconv.FormatFloat(v, 'f', 0, 64)) }

func msText(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return chart.Thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
