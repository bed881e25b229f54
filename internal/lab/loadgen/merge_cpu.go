package loadgen

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// seconds are the columns of timeseries.csv that merging needs. A value that was not measured is NaN.
type seconds struct{ chunks, frontend, worker, loadgen, busy []float64 }

func readSeconds(dir string) (*seconds, error) {
	path := filepath.Join(dir, report.TimeseriesFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &seconds{}
	columns := map[string]*[]float64{"chunks": &s.chunks, "frontend_cpu_s": &s.frontend, "worker_cpu_s": &s.worker,
		"loadgen_cpu_s": &s.loadgen, "machine_busy": &s.busy}
	for name, column := range columns {
		at := -1
		if len(lines) > 0 {
			for i, have := range lines[0] {
				if have == name {
					at = i
				}
			}
		}
		if at < 0 {
			return nil, fmt.Errorf("%s has no column %s", path, name)
		}
		for _, line := range lines[1:] {
			v := math.NaN()
			if line[at] != "" {
				if v, err = strconv.ParseFloat(line[at], 64); err != nil {
					return nil, fmt.Errorf("%s: column %s: %w", path, name, err)
				}
			}
			*column = append(*column, v)
		}
	}
	return s, nil
}

// cpu fills in the processors' use of a window of the merged run, over the whole seconds of each part that lie in it.
// Requests of all parts count.
func (m *merger) cpu(w *report.Window, span report.Span) {
	per := func(p *part, column []float64) (perRequest float64, ok bool) {
		first := int((span.Start - p.shift + 999_999_999) / 1e9)
		last := int((span.End - p.shift) / 1e9) // not included
		used := 0.0
		if first < 0 || last > len(column) || last <= first {
			return 0, false
		}
		for _, v := range column[first:last] {
			used += v
		}
		from, to := int64(first)*1e9+p.shift, int64(last)*1e9+p.shift
		n := 0
		for i := range m.rows {
			if r := &m.rows[i]; r.OK() && r.End > from && r.End <= to {
				n++
			}
		}
		return used * 1e3 / float64(n), n > 0 && !math.IsNaN(used)
	}
	if p := m.watcher(roleFrontend); p != nil {
		if v, ok := per(p, p.series.frontend); ok {
			w.FrontendCPU = &v
		}
	}
	if p := m.watcher(roleWorker); p != nil {
		if v, ok := per(p, p.series.worker); ok {
			w.WorkerCPU = &v
		}
	}
	total := 0.0
	for _, p := range m.parts {
		v, ok := per(p, p.series.loadgen)
		if !ok {
			return
		}
		total += v
	}
	w.LoadgenCPU = &total
}

// series is the merged time series. Chunks are counted by whole seconds of each part, which are moved to the nearest of
// the merged run.
func (m *merger) series() []report.Second {
	var chunks []int64
	for _, p := range m.parts {
		move := int(math.Round(float64(p.shift) / 1e9))
		for i, v := range p.series.chunks {
			for len(chunks) <= i+move {
				chunks = append(chunks, 0)
			}
			chunks[i+move] += int64(v)
		}
	}
	return report.Series(m.rows, chunks)
}
