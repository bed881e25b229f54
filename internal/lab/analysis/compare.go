package analysis

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// What it takes to call a difference real.
const (
	minRuns  = 5    // on each side
	minShare = 0.03 // between the medians
)

// Comparison is two sides held against each other.
type Comparison struct {
	A, B     string // names of the sides' configurations
	Buckets  []Bucket
	SetAside []*Run
	// Differ lists the settings that differ between the sides, "key: A | B".
	Differ   []string
	Warnings []string
	window   string
}

// Bucket compares the runs of both sides with one number of holders.
type Bucket struct {
	Holders int
	A, B    []*Run
	// Blocks is into how many blocks of one side the runs fall, in the order of their starts: 2 when one side ran
	// before the other.
	Blocks  int
	Results []Result
}

// Result is one metric of a bucket.
type Result struct {
	Metric Metric
	A, B   Range
	// Resolved is whether the difference is larger than what the runs of one side differ among themselves; Why says why
	// not.
	Resolved bool
	Why      string
	// Blocky says that the sides did not take turns, so that a drift of the machine may be the difference.
	Blocky bool
}

// Difference is B's median less A's, and as a share of A's.
func (r Result) Difference() (d, share float64) {
	d = r.B.Median - r.A.Median
	if d == 0 {
		return 0, 0
	}
	return d, d / math.Abs(r.A.Median)
}

// Compare holds the runs of a against those of b, with equal numbers of holders only. A *NotComparableError, beside a
// comparison without buckets, says why nothing could be held against anything: no two runs with equal holders, a side
// of several configurations, or sides under different load.
func Compare(ctx context.Context, a, b []string, opts Options) (*Comparison, error) {
	if len(a) == 0 || len(b) == 0 {
		return nil, fmt.Errorf("a comparison needs runs on both sides")
	}
	// Both sides are read together, so that a run that stands on both is noticed.
	ea, err := expand(a)
	if err != nil {
		return nil, err
	}
	eb, err := expand(b)
	if err != nil {
		return nil, err
	}
	runs, err := Load(ctx, append(slices.Clone(ea), eb...), opts)
	if err != nil {
		return nil, err
	}
	return compare(runs[:len(ea)], runs[len(ea):], opts.withDefaults())
}

func compare(a, b []*Run, opts Options) (*Comparison, error) {
	c := &Comparison{window: opts.Window}
	sideA, sideB := c.usable(a), c.usable(b)
	var why []string
	for _, s := range []struct {
		name string
		runs []*Run
		of   int
	}{{"A", sideA, len(a)}, {"B", sideB, len(b)}} {
		if len(s.runs) == 0 {
			why = append(why, fmt.Sprintf("all %d runs of side %s were set aside", s.of, s.name))
			continue
		}
		if mixed := mixedIn(s.runs); mixed != "" {
			why = append(why, fmt.Sprintf("side %s mixes configurations (%s)", s.name, mixed))
		}
	}
	if len(why) > 0 {
		return c, &NotComparableError{why}
	}
	c.A, c.B = sideA[0].Config.Name, sideB[0].Config.Name
	both := []Config{sideA[0].Config, sideB[0].Config}
	for _, k := range differing(both) {
		c.Differ = append(c.Differ, fmt.Sprintf("%s: %s | %s", strings.Replace(k, "env.", "environment ", 1),
			both[0].value(k), both[1].value(k)))
		if contains(loadKeys, k) && !contains(opts.Across, k) {
			why = append(why, fmt.Sprintf("the sides are under different load: %s is %s and %s", k, both[0].value(k),
				both[1].value(k)))
		}
	}
	if len(why) > 0 {
		return c, &NotComparableError{why}
	}
	c.bucket(sideA, sideB)
	if len(c.Buckets) == 0 {
		return c, &NotComparableError{[]string{fmt.Sprintf("no number of holders occurs on both sides (A: %s; B: %s)",
			holdersOf(sideA), holdersOf(sideB))}}
	}
	return c, nil
}

// usable splits off the runs that were set aside.
func (c *Comparison) usable(runs []*Run) (out []*Run) {
	for _, r := range runs {
		switch {
		case len(r.Aside) > 0:
			c.SetAside = append(c.SetAside, r)
		case r.Holders < 0:
			r.Aside = append(r.Aside, "its responses do not name their worker process, so its holders are unknown")
			c.SetAside = append(c.SetAside, r)
		default:
			out = append(out, r)
		}
	}
	return out
}

// mixedIn says in what the runs of one side differ, "" when they are of one configuration.
func mixedIn(runs []*Run) string {
	var all []Config
	for _, r := range runs {
		all = append(all, r.Config)
	}
	var parts []string
	for _, k := range differing(all) {
		var values []string
		for _, c := range all {
			if v := c.value(k); !contains(values, v) {
				values = append(values, v)
			}
		}
		parts = append(parts, k+" "+strings.Join(values, " and "))
	}
	return strings.Join(parts, ", ")
}

func (c *Comparison) bucket(a, b []*Run) {
	by := func(runs []*Run) map[int][]*Run {
		m := map[int][]*Run{}
		for _, r := range runs {
			m[r.Holders] = append(m[r.Holders], r)
		}
		return m
	}
	byA, byB := by(a), by(b)
	for _, side := range []struct {
		runs  []*Run
		other map[int][]*Run
		name  string
	}{{a, byB, "B"}, {b, byA, "A"}} {
		for _, r := range side.runs {
			if side.other[r.Holders] == nil {
				r.Aside = append(r.Aside, fmt.Sprintf("no partner: no run of side %s has %s", side.name,
					holdersText(r.Holders)))
				c.SetAside = append(c.SetAside, r)
			}
		}
	}
	var counts []int
	for n := range byA {
		if byB[n] != nil {
			counts = append(counts, n)
		}
	}
	slices.Sort(counts)
	for _, n := range counts {
		k := Bucket{Holders: n, A: byA[n], B: byB[n], Blocks: blocks(byA[n], byB[n])}
		for _, m := range beside(comparedMetrics, slices.Concat(k.A, k.B)) {
			r := resolve(m, k.A, k.B)
			r.Blocky = !k.interleaved()
			k.Results = append(k.Results, r)
		}
		c.Buckets = append(c.Buckets, k)
		c.warn(k)
	}
}

// resolve applies the rule: at least minRuns a side, ranges that do not overlap, and medians that differ by more than
// minShare.
func resolve(m Metric, a, b []*Run) Result {
	r := Result{Metric: m, A: rangeOf(m, a), B: rangeOf(m, b)}
	_, share := r.Difference()
	switch {
	case r.A.N == 0 && r.B.N == 0:
		r.Why = "not measured"
	case r.A.N < len(a) || r.B.N < len(b):
		r.Why = fmt.Sprintf("not measured in %d of %d runs", len(a)-r.A.N+len(b)-r.B.N, len(a)+len(b))
	case min(r.A.N, r.B.N) < minRuns:
		r.Why = fmt.Sprintf("%d and %d runs, at least %d a side are needed", r.A.N, r.B.N, minRuns)
	case r.A.Min <= r.B.Max && r.B.Min <= r.A.Max:
		r.Why = "the ranges overlap"
	case !(math.Abs(share) > minShare):
		r.Why = fmt.Sprintf("the medians differ by %.1f%%, more than %.0f%% is needed", math.Abs(share)*100,
			minShare*100)
	default:
		r.Resolved = true
	}
	return r
}

// warn adds what could make a bucket's result something else than it seems.
func (c *Comparison) warn(k Bucket) {
	if !k.interleaved() {
		how := fmt.Sprintf("the %d runs of A and %d of B ran in only %d blocks", len(k.A), len(k.B), k.Blocks)
		if k.Blocks == 2 {
			how = "all runs of one side ran before the other's"
		}
		c.Warnings = append(c.Warnings,
			fmt.Sprintf("%s: %s; a drift of the machine looks like a difference. Interleave them.",
				holdersText(k.Holders), how))
	}
	if n, m := rangeOf(metricErrors, k.A), rangeOf(metricErrors, k.B); n.Max > 0 || m.Max > 0 {
		c.Warnings = append(c.Warnings,
			fmt.Sprintf("%s: requests failed (A %s, B %s a run): latencies are the survivors', and what failed "+
				"waited for nothing", holdersText(k.Holders),
				n.text(metricErrors), m.text(metricErrors)))
	}
	a, b := slices.ContainsFunc(k.A, (*Run).bundled), slices.ContainsFunc(k.B, (*Run).bundled)
	if a != b {
		side := "A"
		if b {
			side = "B"
		}
		c.Warnings = append(c.Warnings,
			fmt.Sprintf("%s: only side %s sends several tokens in a chunk (bundled): its ITL is a mean that no token "+
				"waited; compare the chunk gaps and the latency.",
				holdersText(k.Holders), side))
	}
	t := result(k, metricTTFT50)
	for _, m := range []Metric{metricITL50, metricITL99} {
		i := result(k, m)
		di, si := i.Difference()
		dt, st := t.Difference()
		if i.Resolved && di*dt < 0 && math.Abs(st) > minShare && math.Abs(si) > minShare {
			better := "B"
			if di > 0 {
				better = "A"
			}
			c.Warnings = append(c.Warnings,
				fmt.Sprintf("%s: side %s has the lower %s and the higher TTFT. (Latency - TTFT) / (tokens - 1) gets "+
					"smaller when the first token comes late: "+
					"look at the latency.", holdersText(k.Holders), better, m.Name))
		}
	}
}

func result(k Bucket, m Metric) Result {
	for _, r := range k.Results {
		if r.Metric.Name == m.Name {
			return r
		}
	}
	return Result{}
}

func holdersOf(runs []*Run) string {
	var parts []string
	for _, r := range runs {
		parts = append(parts, fmt.Sprintf("%s %d", filepath.Base(r.Dir), r.Holders))
	}
	return strings.Join(parts, ", ")
}
