package transportbench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// Report is what was measured.
type Report struct {
	Schema   string   `json:"schema"`
	Cores    int      `json:"cores"`
	Messages int      `json:"messages,omitempty"` // of a cell
	Items    int      `json:"items,omitempty"`    // of a cell of streams
	Runs     int      `json:"runs"`
	Remote   bool     `json:"remote"` // the server is another process
	Tables   []*Table `json:"tables"`
}

// Shown are the tables as they are printed.
func (r *Report) Shown() (out []benchtable.Table) {
	for _, t := range r.Tables {
		out = append(out, t.Shown())
	}
	return out
}

// Cell is one thing that is measured once in each repetition. Measure puts what it finds into a table.
type Cell struct {
	Name    string
	Measure func(context.Context) error
}

// Repeat measures every cell once in each repetition, one after the other.
func Repeat(ctx context.Context, runs int, cells []Cell, progress func(string)) error {
	for n := range runs {
		if progress != nil {
			progress(fmt.Sprintf("repetition %d of %d: %d cells", n+1, runs, len(cells)))
		}
		for _, x := range cells {
			if err := x.Measure(ctx); err != nil {
				if cause := context.Cause(ctx); cause != nil {
					err = cause
				}
				return fmt.Errorf("%s: %w", x.Name, err)
			}
		}
	}
	return nil
}

// Share is how many of n things the i-th of so many gets.
func Share(n, of, i int) int {
	if i < n%of {
		return n/of + 1
	}
	return n / of
}

// Lanes is a number of lanes in words.
func Lanes(n int) string {
	if n == 1 {
		return "1 lane"
	}
	return fmt.Sprintf("%d lanes", n)
}

// Scaling is the note of a table whose rates grow with cores, "" when there are as many as lanes.
func Scaling(lanes ...int) string {
	var over []string
	for _, n := range lanes {
		if n > procstat.CPUs() {
			over = append(over, fmt.Sprint(n))
		}
	}
	if len(over) == 0 {
		return ""
	}
	return fmt.Sprintf("scaling not visible: %d cores (lanes %s)", procstat.CPUs(), strings.Join(over, ", "))
}

// With calls f with what a request's body holds.
func With[T any](body []byte, f func(T) (any, error)) (any, error) {
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		return nil, err
	}
	return f(v)
}
