package settings

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/laneway-ai/laneway/internal/planebench"
)

// Print writes a row for each setting and plane: the median over the pairs, and their range. Under 1 is better than the default.
func Print(w io.Writer, settings []Setting, planes []string, pairs []Pair, left []Left) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	row("setting / default", "plane", "pairs", "marked", "frontend CPU", "worker CPU", "all CPU", "delay p99 ms", "TTFT p99 ms")
	for _, s := range settings {
		for _, plane := range planes {
			var front, worker, total, delay, ttft []float64
			marked := 0
			for _, p := range pairs {
				switch {
				case p.Setting != s.Name || p.Plane != plane:
				case len(p.Marks) > 0:
					marked++
				default:
					front, worker, total = append(front, p.Frontend), append(worker, p.Worker), append(total, p.Total)
					delay, ttft = append(delay, p.Delay), append(ttft, p.TTFT)
				}
			}
			if len(front)+marked == 0 {
				continue // of another plane, or left out
			}
			more := func(v []float64) string {
				if len(v) == 0 {
					return "-"
				}
				x := planebench.SpreadOf(v)
				return fmt.Sprintf("%+.2f [%+.2f to %+.2f]", x.Median, x.Min, x.Max)
			}
			share := func(v []float64) string {
				if len(v) == 0 {
					return "-"
				}
				return planebench.SpreadOf(v).String()
			}
			row(s.Name, plane, fmt.Sprint(len(front)), fmt.Sprint(marked), share(front), share(worker), share(total), more(delay), more(ttft))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, l := range left {
		fmt.Fprintf(w, "left out: %s: %s\n", l.Setting, l.Why)
	}
	_, err := fmt.Fprintln(w, "A pair in which a run was below its offered rate, or the machine was full, is marked and in no ratio.")
	return err
}
