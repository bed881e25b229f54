package analysis

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Resolved counts the metrics whose difference is real.
func (c *Comparison) Resolved() int {
	n := 0
	for _, k := range c.Buckets {
		for _, r := range k.Results {
			if r.Resolved {
				n++
			}
		}
	}
	return n
}

// Print writes the comparison: what differs between the sides, a table for each number of holders, and the runs that
// were set aside.
func (c *Comparison) Print(w io.Writer) error {
	var b strings.Builder
	if len(c.Buckets) > 0 {
		fmt.Fprintf(&b, "A: %s\nB: %s\n", c.A, c.B)
		if len(c.Differ) == 0 {
			b.WriteString("No setting that run.json holds differs between the sides.\n")
		} else {
			fmt.Fprintf(&b, "The sides differ in (A | B)\n  %s\n", strings.Join(c.Differ, "\n  "))
		}
		if c.window == WindowRaw {
			b.WriteString("RAW: these figures hold the opening burst; high percentiles may be nothing else.\n")
		}
	}
	var used []*Run
	for _, k := range c.Buckets {
		used = append(append(used, k.A...), k.B...)
		fmt.Fprintf(&b, "\n%s: %d runs of A (%s), %d of B (%s)\n", holdersText(k.Holders), len(k.A), names(k.A),
			len(k.B), names(k.B))
		tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		fmt.Fprintln(tw, "  metric\tA\tB\tdifference of medians\tverdict")
		for _, r := range k.Results {
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\n", header(r.Metric), r.A.text(r.Metric), r.B.text(r.Metric),
				r.difference(), r.verdict())
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		b.WriteString("  errors: A " + rangeOf(metricErrors, k.A).text(metricErrors) + ", B " +
			rangeOf(metricErrors, k.B).text(metricErrors))
		b.WriteString("; drops: A " + rangeOf(metricDrops, k.A).text(metricDrops) + ", B " +
			rangeOf(metricDrops, k.B).text(metricDrops) + "\n")
	}
	if len(c.Buckets) > 0 {
		fmt.Fprintf(&b,
			"\nResolved: at least %d runs a side, ranges that do not overlap, medians more than %.0f%% apart.\n",
			minRuns, minShare*100)
		for _, k := range c.Buckets {
			if min(len(k.A), len(k.B)) >= minRuns {
				n := chance(len(k.A), len(k.B))
				fmt.Fprintf(&b,
					"%s: with %d and %d runs of the same thing, chance alone keeps the ranges of one metric apart in "+
						"1 of %.0f comparisons, and those of any of the %d in at most\n"+
						"1 of %.0f. Repeat what matters, or make more runs.\n", holdersText(k.Holders), len(k.A),
					len(k.B),
					n, len(k.Results), n/float64(len(k.Results)))
			}
		}
		if c.Resolved() == 0 {
			b.WriteString("cannot resolve any difference\n")
		}
	}
	for _, s := range c.Warnings {
		fmt.Fprintf(&b, "WARNING: %s\n", s)
	}
	printNotes(&b, used)
	printAside(&b, c.SetAside)
	_, err := io.WriteString(w, b.String())
	return err
}

// chance says in 1 of how many comparisons the ranges of a and b runs of the same thing do not overlap: the runs, in
// the order of their values, must be all of one side and then all of the other, which is 2 of all ways to choose a of a
// + b.
func chance(a, b int) float64 {
	ways := 1.0
	for i := 1; i <= a; i++ {
		ways = ways * float64(b+i) / float64(i)
	}
	return ways / 2
}

func (r Result) difference() string {
	if r.A.N == 0 || r.B.N == 0 {
		return "-"
	}
	d, share := r.Difference()
	sign := ""
	if d > 0 {
		sign = "+"
	}
	if math.IsInf(share, 0) {
		return sign + r.Metric.Text(d)
	}
	return fmt.Sprintf("%s%s (%s%.1f%%)", sign, r.Metric.Text(d), sign, share*100)
}

func (r Result) verdict() string {
	if !r.Resolved {
		return "cannot resolve: " + r.Why
	}
	d, _ := r.Difference()
	word := "worse"
	if d > 0 == r.Metric.HigherIsBetter {
		word = "better"
	}
	// How far apart the sides are at the least and at the most.
	least, most := r.B.Min-r.A.Max, r.B.Max-r.A.Min
	if d < 0 {
		least, most = r.A.Min-r.B.Max, r.A.Max-r.B.Min
	}
	mark := ""
	if r.Blocky {
		mark = " (NOT INTERLEAVED)"
	}
	return fmt.Sprintf("resolved: B is %s, by %s to %s%s", word, r.Metric.Text(least), r.Metric.Text(most), mark)
}
