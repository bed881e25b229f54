package suite

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
)

// goTables reads the output of the passes of Go benchmarks.
func goTables(path, ratio string) ([]benchtable.Table, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := summary(string(b), ratio)
	if len(t) == 0 {
		return nil, fmt.Errorf("no benchmark has printed a result: %s", b)
	}
	return t, nil
}

// result is one line of a benchmark, over the passes.
type result struct {
	name   string
	keys   []string // of its name's elements: KEY=VALUE
	cells  []string
	values map[string][]float64 // by unit
}

// summary joins the passes of Go benchmarks: a table for each benchmark whose lines are named alike, with a column for
// each KEY=VALUE of the names, then for each unit the median and the range, and of the unit ratio what it is to that of
// a base. It is empty for text that has no results.
func summary(text, ratio string) (out []benchtable.Table) {
	var results []*result
	var units []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		i := slices.IndexFunc(results, func(r *result) bool { return r.name == f[0] })
		if i < 0 {
			i = len(results)
			results = append(results, newResult(f[0]))
		}
		for k := 2; k+1 < len(f); k += 2 { // f[1] is the number of iterations
			v, err := strconv.ParseFloat(f[k], 64)
			if err != nil {
				break
			}
			if !slices.Contains(units, f[k+1]) {
				units = append(units, f[k+1])
			}
			results[i].values[f[k+1]] = append(results[i].values[f[k+1]], v)
		}
	}
	for len(results) > 0 {
		first := results[0]
		alike := func(r *result) bool { return slices.Equal(r.keys, first.keys) }
		var rows []*result
		for _, r := range results {
			if alike(r) {
				rows = append(rows, r)
			}
		}
		results = slices.DeleteFunc(results, alike)
		out = append(out, tableOf(rows, units, ratio))
	}
	return out
}

// procs is what the testing package puts behind a name.
var procs = regexp.MustCompile(`-\d+$`)

func newResult(name string) *result {
	r := &result{name: name, values: map[string][]float64{}}
	for i, part := range strings.Split(procs.ReplaceAllString(strings.TrimPrefix(name, "Benchmark"), ""), "/") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			key, value = "", part
			if i == 0 {
				key = part // what has another name is another table
			}
		}
		r.keys, r.cells = append(r.keys, key), append(r.cells, value)
	}
	return r
}

func tableOf(rows []*result, units []string, ratio string) benchtable.Table {
	t := benchtable.Table{Head: append([]string{"benchmark"}, rows[0].keys[1:]...)}
	units = slices.DeleteFunc(slices.Clone(units), func(unit string) bool {
		return !slices.ContainsFunc(rows, func(r *result) bool { return len(r.values[unit]) > 0 })
	})
	for _, unit := range units {
		t.Head = append(t.Head, unit)
		if unit == ratio {
			t.Head = append(t.Head, "to "+baseName(rows[0]))
		}
	}
	for _, r := range rows {
		cells := slices.Clone(r.cells)
		for _, unit := range units {
			cells = append(cells, cell(benchtable.SpreadOf(r.values[unit])))
			if unit == ratio {
				cells = append(cells, benchtable.RatioOf(r.values[unit], baseOf(r, rows).values[unit]).String())
			}
		}
		t.Add(cells...)
	}
	return t
}

// planeKey is the element of a name that says which plane a line is of.
const planeKey = "plane"

// baseName is what lines are compared with: the same on the first line's plane, or where there are no planes, the first
// line.
func baseName(first *result) string {
	if i := slices.Index(first.keys, planeKey); i >= 0 {
		return first.cells[i]
	}
	return "the first"
}

// baseOf is the line that one is compared with. One without values is none.
func baseOf(r *result, rows []*result) *result {
	plane := slices.Index(r.keys, planeKey)
	if plane < 0 {
		return rows[0]
	}
	want := slices.Clone(r.cells)
	want[plane] = rows[0].cells[plane]
	for _, o := range rows {
		if slices.Equal(o.cells, want) {
			return o
		}
	}
	return &result{}
}

func cell(s benchtable.Spread) string {
	if s.N == 0 {
		return "-"
	}
	if s.Min == s.Max {
		return digits(s.Median)
	}
	return fmt.Sprintf("%s [%s-%s]", digits(s.Median), digits(s.Min), digits(s.Max))
}

// digits writes four digits without an exponent.
func digits(v float64) string {
	if v >= 1000 || v <= -1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
