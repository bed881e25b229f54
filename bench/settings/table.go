package settings

import (
	"fmt"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
)

// Shown is a row for each setting and plane: the median over the pairs, and their range. Under 1 is better than the
// default.
func Shown(settings []Setting, planes []string, pairs []Pair, left []Left) benchtable.Table {
	t := benchtable.Table{Head: []string{"setting / default", "plane", "pairs", "marked", "frontend CPU", "worker CPU",
		"all CPU", "delay p99 ms", "TTFT p99 ms"}}
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
			share := func(v []float64) string { return benchtable.SpreadOf(v).String() }
			more := func(v []float64) string { return benchtable.SpreadOf(v).More("%+.2f") }
			t.Add(s.Name, plane, fmt.Sprint(len(front)), fmt.Sprint(marked), share(front), share(worker), share(total),
				more(delay), more(ttft))
		}
	}
	for _, l := range left {
		t.Note("Left out: %s: %s", l.Setting, l.Why)
	}
	t.Note("A pair in which a run was below its offered rate, or the machine was full, is marked and in no ratio.")
	return t
}
