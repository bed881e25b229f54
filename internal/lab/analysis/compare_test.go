package analysis

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/analysis/runtest"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

var began = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// side writes n runs of one side. The sides' runs take turns: A at even minutes, B at odd ones.
func side(t *testing.T, dir, name string, n int, s runtest.Spec) []string {
	t.Helper()
	var out []string
	for i := range n {
		s.ID, s.Seed = fmt.Sprintf("%s-%d", name, i+1), uint64(len(name)*1000+int(name[0])*10+i)
		s.Started = began.Add(time.Duration(2*i) * time.Minute)
		if strings.HasPrefix(name, "b") {
			s.Started = s.Started.Add(time.Minute)
		}
		out = append(out, write(t, dir, s))
	}
	return out
}

func mustCompare(t *testing.T, a, b []string, opts Options) (*Comparison, string) {
	t.Helper()
	c, err := Compare(t.Context(), a, b, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c, printed(t, func(w *bytes.Buffer) error { return c.Print(w) })
}

func metricOf(t *testing.T, c *Comparison, name string) Result {
	t.Helper()
	for _, r := range c.Buckets[0].Results {
		if r.Metric.Name == name {
			return r
		}
	}
	t.Fatalf("no metric %s", name)
	return Result{}
}

func TestSameThingIsNotResolved(t *testing.T) {
	dir := t.TempDir()
	c, out := mustCompare(t, side(t, dir, "a", 5, runtest.Spec{}), side(t, dir, "b", 5, runtest.Spec{}), Options{})
	if c.Resolved() != 0 || !strings.Contains(out, "cannot resolve any difference") ||
		!strings.Contains(out, "No setting that run.json holds differs") || len(c.Warnings) != 0 {
		t.Errorf("%d resolved, warnings %v\n%s", c.Resolved(), c.Warnings, out)
	}
}

func TestAddedLatencyIsResolved(t *testing.T) {
	dir := t.TempDir()
	a := side(t, dir, "a", 5, runtest.Spec{First: held(2)})
	b := side(t, dir, "b", 5, runtest.Spec{First: held(2), ITL: 22 * ms,
		Config: map[string]any{"inter_token_latency": "22ms"}})
	c, out := mustCompare(t, a, b, Options{})
	for _, name := range []string{"ITL p50", "ITL p99"} {
		r := metricOf(t, c, name)
		if d, share := r.Difference(); !r.Resolved || d < 1.5 || d > 2.5 || share < .08 {
			t.Errorf("%s: resolved %v, difference %v ms", name, r.Resolved, d)
		}
		if r.A.Min > r.A.Median || r.A.Median > r.A.Max || r.A.N != 5 {
			t.Errorf("%s: range %+v", name, r.A)
		}
	}
	if metricOf(t, c, "TTFT p50").Resolved || metricOf(t, c, "frontend CPU").Resolved {
		t.Errorf("what was not changed is resolved:\n%s", out)
	}
	if len(c.Buckets) != 1 || c.Buckets[0].Holders != 2 || !strings.Contains(out, "resolved: B is worse, by ") ||
		!strings.Contains(out, "inter_token_latency: not said | 22ms") ||
		!strings.Contains(out, "2 holders: 5 runs of A (a-1, a-2, a-3, a-4, a-5), 5 of B") {
		t.Error(out)
	}
	// The other way round it is an improvement.
	if _, out = mustCompare(t, b, a, Options{}); !strings.Contains(out, "resolved: B is better") {
		t.Error(out)
	}
	// With four runs on a side nothing is resolved, however large.
	if c, out = mustCompare(t, a, b[:4], Options{}); c.Resolved() != 0 ||
		!strings.Contains(out, "cannot resolve: 5 and 4 runs, at least 5 a side are needed") {
		t.Errorf("%d resolved\n%s", c.Resolved(), out)
	}
}

// TestRule holds the three conditions at their edges.
func TestRule(t *testing.T) {
	m := metricCPU
	runs := func(v ...float64) (out []*Run) {
		for _, x := range v {
			r := &Run{Window: &report.Window{}}
			if x >= 0 {
				r.Window.FrontendCPU = &x
			}
			out = append(out, r)
		}
		return out
	}
	for _, c := range []struct {
		name string
		a, b []*Run
		want string // "" = resolved
	}{
		{"apart", runs(100, 101, 102, 103, 104), runs(105, 106, 107, 108, 109), ""},
		{"apart, downwards", runs(105, 106, 107, 108, 109), runs(100, 101, 102, 103, 104), ""},
		{"they touch", runs(100, 101, 102, 103, 105), runs(105, 106, 107, 108, 109), "the ranges overlap"},
		{"one outlier", runs(100, 101, 102, 103, 200), runs(105, 106, 107, 108, 109), "the ranges overlap"},
		{"one inside the other", runs(100, 101, 102, 103, 104), runs(90, 106, 107, 108, 109), "the ranges overlap"},
		{"exactly 3%", runs(100, 100, 100, 100, 100), runs(103, 103, 103, 103, 103), "the medians differ by 3.0%"},
		{"a little more than 3%", runs(100, 100, 100, 100, 100), runs(103.01, 103.01, 103.01, 103.01, 103.01), ""},
		{"four runs", runs(1, 1, 1, 1), runs(9, 9, 9, 9, 9, 9), "4 and 6 runs, at least 5"},
		{"one not measured", runs(1, 1, 1, 1, 1, -1), runs(9, 9, 9, 9, 9), "not measured in 1 of 11 runs"},
		{"none measured", runs(-1, -1, -1, -1, -1), runs(-1, -1, -1, -1, -1), "not measured"},
		{"all zero", runs(0, 0, 0, 0, 0), runs(0, 0, 0, 0, 0), "the ranges overlap"},
		{"from zero", runs(0, 0, 0, 0, 0), runs(1, 1, 1, 1, 1), ""},
	} {
		r := resolve(m, c.a, c.b)
		if r.Resolved != (c.want == "") || !strings.Contains(r.Why, c.want) {
			t.Errorf("%s: resolved %v, %q, want %q", c.name, r.Resolved, r.Why, c.want)
		}
		_, _ = r.difference(), r.verdict() // neither may panic, whatever was measured
	}
	if r := rangeOf(m, runs(4, 1, 3, 2)); r.Median != 2.5 || r.Min != 1 || r.Max != 4 {
		t.Errorf("range %+v", r)
	}
}

func TestUnequalHoldersAreRefused(t *testing.T) {
	dir := t.TempDir()
	a1, b2 := side(t, dir, "a", 5, runtest.Spec{First: held(1)}), side(t, dir, "b", 5, runtest.Spec{First: held(2)})
	c, err := Compare(t.Context(), a1, b2, Options{})
	var none *NotComparableError
	if !errors.As(err, &none) || len(c.Buckets) != 0 || !strings.Contains(err.Error(),
		"no number of holders occurs on both sides") || len(c.SetAside) != 10 {
		t.Fatalf("%v, %d buckets", err, len(c.Buckets))
	}
	out := printed(t, func(w *bytes.Buffer) error { return c.Print(w) })
	if strings.Contains(out, "resolve") ||
		!strings.Contains(out, "a-1 (1 holder): no partner: no run of side B has 1 holder") {
		t.Errorf("printed:\n%s", out)
	}
	// Where some are equal, those are compared and the others are listed.
	b1 := side(t, dir, "bb", 2, runtest.Spec{First: held(1)})
	c, out = mustCompare(t, a1, append(b2, b1...), Options{})
	if len(c.Buckets) != 1 || c.Buckets[0].Holders != 1 || len(c.Buckets[0].B) != 2 || len(c.SetAside) != 5 {
		t.Errorf("%d buckets\n%s", len(c.Buckets), out)
	}
}

func TestWhatDoesNotCompare(t *testing.T) {
	dir := t.TempDir()
	a := side(t, dir, "a", 2, runtest.Spec{})
	busy := side(t, dir, "busy", 2, runtest.Spec{Config: map[string]any{"concurrency": 512}})
	lanes := side(t, dir, "lanes", 1, runtest.Spec{Config: map[string]any{"lanes": 4}})
	bad := side(t, dir, "bad", 1, runtest.Spec{Row: fail(1)})
	nameless := side(t, dir, "nameless", 1, runtest.Spec{Row: func(_ int, r *report.Row) { r.Process = "" }})
	var none *NotComparableError
	for _, c := range []struct {
		a, b []string
		opts Options
		want string // "" = compares
	}{
		{a, busy, Options{}, "the sides are under different load: concurrency is 64 and 512"},
		{a, busy, Options{Across: []string{"concurrency"}}, ""},
		{a, append(lanes, a[:0]...), Options{}, ""},
		{append([]string{a[0]}, lanes...), []string{a[1]}, Options{}, "side A mixes configurations (lanes 1 and 4)"},
		{a, bad, Options{}, "all 1 runs of side B were set aside"},
		{a, nameless, Options{}, "all 1 runs of side B were set aside"},
	} {
		got, err := Compare(t.Context(), c.a, c.b, c.opts)
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.As(err, &none) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v - %v: %v, want %q", c.a, c.b, err, c.want)
		}
		if c.want != "" && got.Resolved() > 0 {
			t.Error("something is resolved where nothing compares")
		}
	}
	var in *InputError
	if _, err := Compare(t.Context(), a, a[:1], Options{}); !errors.As(err, &in) || !strings.Contains(err.Error(),
		"holds the same run") {
		t.Errorf("a run on both sides: %v", err)
	}
	if _, err := Compare(t.Context(), a, []string{filepath.Join(dir, "no")}, Options{}); !errors.As(err, &in) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := Compare(t.Context(), a, nil, Options{}); err == nil {
		t.Error("a side without runs")
	}
}

// TestWarnings are the mistakes that a comparison cannot refuse but says.
func TestWarnings(t *testing.T) {
	dir := t.TempDir()
	a := side(t, dir, "a", 5, runtest.Spec{})
	for _, c := range []struct {
		name string
		spec runtest.Spec
		opts Options
		want string
	}{
		{"bsurvive", runtest.Spec{Row: fail(8)}, Options{MaxErrorRate: .05},
			"requests failed (A 0, B 8 a run): latencies are the survivors'"},
		{"bflatter", runtest.Spec{First: slow(60 * ms), ITL: 16 * ms}, Options{},
			"side B has the lower ITL p50 and the higher TTFT"},
		{"bbundled", runtest.Spec{Run: func(r *report.Run) { r.Mark(report.MarkBundled) }}, Options{},
			"only side B sends several tokens in a chunk (bundled)"},
		{"later", runtest.Spec{Run: func(r *report.Run) {
			at, _ := time.Parse(time.RFC3339, r.StartedAt)
			r.StartedAt = report.Stamp(at.Add(time.Hour))
		}}, Options{}, "all runs of one side ran before the other's"},
	} {
		b := side(t, dir, c.name, 5, c.spec)
		got, out := mustCompare(t, a, b, c.opts)
		if s := strings.Join(got.Warnings, "\n"); !strings.Contains(s, c.want) ||
			!strings.Contains(out, "WARNING: 0 holders: ") {
			t.Errorf("%s: %q, want %q", c.name, s, c.want)
		}
	}
	// as a row's ITL says nothing then
	if _, out := mustCompare(t, a, side(t, dir, "bgaps", 5, runtest.Spec{Run: func(r *report.Run) {
		r.Mark(report.MarkBundled)
		r.Steady.ICL = &report.Dist{P50: 77, P99: 91}
	}}), Options{}); !strings.Contains(out, "chunk gap p50 (ms)") || !strings.Contains(out, "77.0") ||
		!strings.Contains(out, "91.0") {
		t.Errorf("no chunk gaps beside ITL:\n%s", out)
	}
	faster := side(t, dir, "bfaster", 5, runtest.Spec{ITL: 16 * ms})
	if c, _ := mustCompare(t, a, faster, Options{}); len(c.Warnings) != 0 || !metricOf(t, c, "ITL p50").Resolved {
		t.Errorf("a plain improvement: %v", c.Warnings)
	}
	host := side(t, dir, "bhost", 5, runtest.Spec{Run: func(r *report.Run) {
		r.Environment.RmemMax, r.Environment.Revision = report.Ptr(int64(8<<20)), "def"
	}})
	if c, out := mustCompare(t, a, host, Options{}); len(c.Differ) != 2 ||
		!strings.Contains(out, "environment rmem_max: 212992 | 8388608") ||
		!strings.Contains(out, "environment revision: abc | def") {
		t.Errorf("what differs between the hosts: %v", c.Differ)
	}
}

func slow(d time.Duration) []time.Duration {
	out := held(0)
	for i := range out {
		out[i] = d
	}
	return out
}
