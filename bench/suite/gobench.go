package suite

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/planebench"
)

// summary joins the passes of Go benchmarks: for each benchmark and unit the median and the range. It is "" for text that has none.
func summary(text string) string {
	type key struct{ name, unit string }
	values := map[key][]float64{}
	var order []key
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		for i := 2; i+1 < len(f); i += 2 { // f[1] is the number of iterations
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				break
			}
			k := key{strings.TrimPrefix(f[0], "Benchmark"), f[i+1]}
			if values[k] == nil {
				order = append(order, k)
			}
			values[k] = append(values[k], v)
		}
	}
	var b strings.Builder
	last := ""
	for _, k := range order {
		if k.name != last {
			fmt.Fprintf(&b, "%s\n", k.name)
			last = k.name
		}
		s := planebench.SpreadOf(values[k])
		fmt.Fprintf(&b, "    %-20s %s", k.unit, digits(s.Median))
		if s.N > 1 {
			fmt.Fprintf(&b, " [%s to %s] of %d", digits(s.Min), digits(s.Max), s.N)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func digits(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

// SummaryFile has the summary of a part that is a Go benchmark.
const SummaryFile = "summary.txt"

// writeSummary writes it beside the output of the passes.
func writeSummary(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	s := summary(string(b))
	if s == "" {
		return fmt.Errorf("no benchmark has printed a result: %s", strings.Join(slices.Collect(strings.Lines(string(b))), ""))
	}
	return os.WriteFile(to, []byte(s), 0o644)
}
