package report

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Threshold is one condition on a run: "ttft_p99<250ms", "requests_per_s>=100", "steady:itl_p50<=20ms".
type Threshold struct {
	text   string
	window string // "", "raw" or "steady"
	metric string
	op     string
	limit  float64 // milliseconds for latencies
}

func (t Threshold) String() string { return t.text }

// metrics reads the figures that thresholds may name; false when it was not measured.
var plainMetrics = map[string]func(*Window) (float64, bool){
	"requests_per_s":              func(w *Window) (float64, bool) { return deref(w.RequestsPerS) },
	"output_tokens_per_s":         func(w *Window) (float64, bool) { return deref(w.OutputTokensPer) },
	"goodput_requests_per_s":      func(w *Window) (float64, bool) { return deref(w.GoodputRequests) },
	"errors":                      func(w *Window) (float64, bool) { return float64(w.Errors), true },
	"error_rate":                  func(w *Window) (float64, bool) { return w.ErrorRate(), true },
	"frontend_cpu_ms_per_request": func(w *Window) (float64, bool) { return deref(w.FrontendCPU) },
	"worker_cpu_ms_per_request":   func(w *Window) (float64, bool) { return deref(w.WorkerCPU) },
	"loadgen_cpu_ms_per_request":  func(w *Window) (float64, bool) { return deref(w.LoadgenCPU) },
	"wrong_tokens": func(w *Window) (float64, bool) {
		if w.WrongTokens == nil {
			return 0, false
		}
		return float64(*w.WrongTokens), true
	},
}

var distMetrics = map[string]func(*Window) *Dist{
	"ttft": func(w *Window) *Dist { return w.TTFT }, "itl": func(w *Window) *Dist { return w.ITL },
	"icl":               func(w *Window) *Dist { return w.ICL },
	"latency":           func(w *Window) *Dist { return w.Latency },
	"effective_latency": func(w *Window) *Dist { return w.EffectiveLatency },
}

var distStats = map[string]func(*Dist) float64{
	"avg": func(d *Dist) float64 { return d.Avg }, "min": func(d *Dist) float64 { return d.Min },
	"p50": func(d *Dist) float64 { return d.P50 },
	"p90": func(d *Dist) float64 { return d.P90 }, "p95": func(d *Dist) float64 { return d.P95 },
	"p99":   func(d *Dist) float64 { return d.P99 },
	"p99_9": func(d *Dist) float64 { return d.P999 }, "max": func(d *Dist) float64 { return d.Max },
	"std": func(d *Dist) float64 { return d.Std },
}

func deref(p *float64) (float64, bool) {
	if p == nil {
		return 0, false
	}
	return *p, true
}

// ErrorRate is the share of the window's requests that failed, 0 to 1.
func (w *Window) ErrorRate() float64 {
	if w.Requests+w.Errors == 0 {
		return 0
	}
	return float64(w.Errors) / float64(w.Requests+w.Errors)
}

// ParseThreshold reads one condition: [raw:|steady:]METRIC OP LIMIT with OP one of < <= > >=. Latencies take a unit
// (250ms, 1.5s).
func ParseThreshold(s string) (Threshold, error) {
	t := Threshold{text: s}
	at := strings.IndexAny(s, "<>")
	if at < 0 {
		return t, fmt.Errorf("has no comparison: write it like ttft_p99<250ms")
	}
	name, rest := strings.TrimSpace(s[:at]), s[at+1:]
	t.op = s[at : at+1]
	if strings.HasPrefix(rest, "=") {
		t.op, rest = t.op+"=", rest[1:]
	}
	rest = strings.TrimSpace(rest)
	if w, m, ok := strings.Cut(name, ":"); ok {
		if w != "raw" && w != "steady" {
			return t, fmt.Errorf("names the window %q: use raw or steady", w)
		}
		t.window, name = w, m
	}
	t.metric = name
	var err error
	if _, ok := plainMetrics[name]; ok {
		if t.limit, err = strconv.ParseFloat(rest, 64); err != nil || t.limit-t.limit != 0 {
			return t, fmt.Errorf("has the limit %q: use a number", rest)
		}
		if t.limit < 0 {
			return t, belowZero(rest)
		}
		return t, nil
	}
	if dist, stat, ok := cutStat(name); !ok {
		return t, fmt.Errorf("names the metric %q: use %s, or one of %s with _%s", name,
			strings.Join(keys(plainMetrics), ", "),
			strings.Join(keys(distMetrics), ", "), strings.Join(keys(distStats), ", _"))
	} else if distMetrics[dist] == nil || distStats[stat] == nil {
		return t, fmt.Errorf("names the metric %q: not known", name)
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return t, fmt.Errorf("has the limit %q: use a time with its unit, like 250ms", rest)
	}
	if d < 0 {
		return t, belowZero(rest)
	}
	t.limit = float64(d) * msPerNs
	return t, nil
}

func belowZero(limit string) error {
	return fmt.Errorf("has the limit %q: use 0 or more, no figure is below 0", limit)
}

func cutStat(name string) (dist, stat string, ok bool) {
	for d := range distMetrics {
		if s, found := strings.CutPrefix(name, d+"_"); found && distStats[s] != nil {
			return d, s, true
		}
	}
	return "", "", false
}

func keys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// Miss says why a threshold was not met.
type Miss struct {
	Threshold Threshold
	Window    string
	Got       *float64 // nil: not measured, which is a miss too
}

func (m *Miss) Error() string {
	if m.Got == nil {
		return fmt.Sprintf("threshold %s: not measured in the %s window", m.Threshold.text, m.Window)
	}
	return fmt.Sprintf("threshold %s missed: %.4g in the %s window", m.Threshold.text, *m.Got, m.Window)
}

// Check returns nil when the run meets the threshold. Without a window in the threshold it looks at Best.
func (t Threshold) Check(run *Run) *Miss {
	w, name := run.Best(), "raw"
	if w != nil && w == run.Steady {
		name = "steady"
	}
	switch t.window {
	case "raw":
		w, name = run.Raw, "raw"
	case "steady":
		w, name = run.Steady, "steady"
	}
	miss := &Miss{Threshold: t, Window: name}
	if w == nil {
		return miss
	}
	var v float64
	var ok bool
	if f := plainMetrics[t.metric]; f != nil {
		v, ok = f(w)
	} else if dist, stat, known := cutStat(t.metric); known {
		if d := distMetrics[dist](w); d != nil {
			v, ok = distStats[stat](d), true
		}
	}
	if !ok {
		return miss
	}
	met := false
	switch t.op {
	case "<":
		met = v < t.limit
	case "<=":
		met = v <= t.limit
	case ">":
		met = v > t.limit
	case ">=":
		met = v >= t.limit
	}
	if met {
		return nil
	}
	miss.Got = Ptr(v)
	return miss
}

// maxSLO keeps a limit in milliseconds within what a Duration holds.
const maxSLO = 24 * 365 * time.Hour

// ParseSLO reads the limits of --goodput: "ttft:250ms itl:50ms latency:20s". A plain number is milliseconds, as in the
// --goodput of vLLM and aiperf.
func ParseSLO(s string) (SLO, error) {
	var slo SLO
	for _, f := range strings.Fields(s) {
		name, limit, ok := strings.Cut(f, ":")
		if !ok {
			return slo, fmt.Errorf("has %q: write it like ttft:250ms", f)
		}
		d, err := time.ParseDuration(limit)
		if err != nil {
			ms, err := strconv.ParseFloat(limit, 64)
			if err != nil || ms-ms != 0 || ms > maxSLO.Seconds()*1e3 {
				return slo, fmt.Errorf("has the limit %q: use a time, like 250ms", limit)
			}
			d = time.Duration(ms * 1e6)
		}
		if d <= 0 {
			return slo, fmt.Errorf("has the limit %q: use more than 0", limit)
		}
		switch name {
		case "ttft":
			slo.TTFT = d
		case "itl":
			slo.ITL = d
		case "latency":
			slo.Latency = d
		default:
			return slo, fmt.Errorf("names %q: use ttft, itl or latency", name)
		}
	}
	return slo, nil
}
