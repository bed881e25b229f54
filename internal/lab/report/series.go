package report

import (
	"slices"
	"strconv"
)

// Second is one line of timeseries.csv: what happened in one second of the run. NaN-free: pointers are nil when nothing
// was measured.
type Second struct {
	T         int // seconds after the run's start; the line covers [T, T+1)
	Started   int // requests sent
	Completed int
	Errors    int
	Open      int   // requests open at the end of the second
	Chunks    int64 // content chunks that arrived
	TTFTp50   *float64
	TTFTp99   *float64 // of the responses whose first token came in this second, milliseconds
	// CPU seconds that the processes used in this second, and the machine's busy share.
	FrontendCPU, WorkerCPU, LoadgenCPU, Busy *float64
}

// Series makes the lines from the rows, of all phases. chunks holds the content chunks of each second; it may be
// shorter or nil.
func Series(rows []Row, chunks []int64) []Second {
	if len(rows) == 0 {
		return nil
	}
	last := int64(0)
	for i := range rows {
		last = max(last, rows[i].End, started(&rows[i]))
	}
	out := make([]Second, max(int(last/1e9)+1, len(chunks)))
	ttft := make([][]float64, len(out))
	sec := func(ns int64) int { return min(max(int(ns/1e9), 0), len(out)-1) }
	for i := range rows {
		r := &rows[i]
		out[sec(started(r))].Started++
		out[sec(started(r))].Open++
		end := sec(max(r.End, started(r)))
		out[end].Open--
		if r.OK() {
			out[end].Completed++
		} else if r.Ended != EndCanceled {
			out[end].Errors++
		}
		if v, ok := r.TTFT(); ok && r.OK() {
			s := sec(r.First)
			ttft[s] = append(ttft[s], float64(v))
		}
	}
	open := 0
	for i := range out {
		s := &out[i]
		s.T = i
		open += s.Open
		s.Open = open
		if i < len(chunks) {
			s.Chunks = chunks[i]
		}
		if v := ttft[i]; len(v) > 0 {
			slices.Sort(v)
			s.TTFTp50, s.TTFTp99 = Ptr(Quantile(v, .5)*msPerNs), Ptr(Quantile(v, .99)*msPerNs)
		}
	}
	return out
}

const csvHeader = "t_s,started,completed,errors,open,chunks,ttft_p50_ms,ttft_p99_ms," +
	"frontend_cpu_s,worker_cpu_s,loadgen_cpu_s,machine_busy\n"

// AppendCSV appends timeseries.csv: a header and a line a second. What was not measured is an empty field.
func AppendCSV(b []byte, series []Second) []byte {
	b = append(b, csvHeader...)
	for i := range series {
		s := &series[i]
		for k, v := range []int64{int64(s.T), int64(s.Started), int64(s.Completed), int64(s.Errors), int64(s.Open),
			s.Chunks} {
			if k > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, v, 10)
		}
		for _, p := range []*float64{s.TTFTp50, s.TTFTp99, s.FrontendCPU, s.WorkerCPU, s.LoadgenCPU, s.Busy} {
			b = append(b, ',')
			if p != nil {
				b = strconv.AppendFloat(b, *p, 'f', 4, 64)
			}
		}
		b = append(b, '\n')
	}
	return b
}
