package report

import (
	"cmp"
	"slices"
)

// ProcessLoad is what the measured rows say about one worker process.
type ProcessLoad struct {
	Name     string
	Requests int
	// MeanFirstResponse is the mean time to first token in nanoseconds.
	MeanFirstResponse float64
	// Holder by our rule, Reference by the reference's.
	Holder, Reference bool
}

// FindHolders groups the measured rows by worker process and finds the holders: processes whose mean time to first response is at least a
// quarter of the slowest's and exceeds the median process's by 3 times or by 3 inter-token latencies, whichever is larger. (Of an even number of
// processes the lower middle one is the median, so that half of them may hold.) The reference's rule is the first half alone; it calls
// every process a holder when all answer alike. It returns nil when no row names its process.
func FindHolders(rows []Row) []ProcessLoad {
	type acc struct {
		n   int
		sum float64
	}
	by := map[string]*acc{}
	var itls []float64
	for i := range rows {
		r := &rows[i]
		if r.Phase != PhaseMeasured || r.Process == "" {
			continue
		}
		if v, ok := r.ITL(); ok && r.OK() {
			itls = append(itls, v)
		}
		ttft, ok := r.TTFT()
		if !ok {
			continue
		}
		a := by[r.Process]
		if a == nil {
			a = &acc{}
			by[r.Process] = a
		}
		a.n++
		a.sum += float64(ttft)
	}
	if len(by) == 0 {
		return nil
	}
	loads := make([]ProcessLoad, 0, len(by))
	for name, a := range by {
		loads = append(loads, ProcessLoad{Name: name, Requests: a.n, MeanFirstResponse: a.sum / float64(a.n)})
	}
	slices.SortFunc(loads, func(a, b ProcessLoad) int { return cmp.Compare(a.MeanFirstResponse, b.MeanFirstResponse) })
	slowest := loads[len(loads)-1].MeanFirstResponse
	median := loads[(len(loads)-1)/2].MeanFirstResponse
	itl := 0.0
	if len(itls) > 0 {
		slices.Sort(itls)
		itl = Quantile(itls, .5)
	}
	limit := max(3*median, median+3*itl)
	for i := range loads {
		l := &loads[i]
		l.Reference = l.MeanFirstResponse >= slowest/4
		l.Holder = l.Reference && l.MeanFirstResponse > limit
	}
	slices.SortFunc(loads, func(a, b ProcessLoad) int { return cmp.Compare(a.Name, b.Name) })
	return loads
}
