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

// FindHolders groups the measured rows by worker process and finds the holders; see HolderFinder. It returns nil when no row names its process.
func FindHolders(rows []Row) []ProcessLoad {
	var f HolderFinder
	for i := range rows {
		f.Add(&rows[i])
	}
	return f.Loads()
}

// HolderFinder is FindHolders over rows that come one at a time. The zero value is ready. It is used by one goroutine.
type HolderFinder struct {
	by   map[string]*processSum
	itls []float64
}

type processSum struct {
	n   int
	sum float64
}

// Add takes a row into account; it keeps no reference to it.
func (f *HolderFinder) Add(r *Row) {
	if r.Phase != PhaseMeasured || r.Process == "" {
		return
	}
	if v, ok := r.ITL(); ok && r.OK() {
		f.itls = append(f.itls, v)
	}
	ttft, ok := r.TTFT()
	if !ok {
		return
	}
	a := f.by[r.Process]
	if a == nil {
		if f.by == nil {
			f.by = map[string]*processSum{}
		}
		a = &processSum{}
		f.by[r.Process] = a
	}
	a.n++
	a.sum += float64(ttft)
}

// Loads returns the processes by name, nil when no row named its process.
func (f *HolderFinder) Loads() []ProcessLoad {
	if len(f.by) == 0 {
		return nil
	}
	loads := make([]ProcessLoad, 0, len(f.by))
	for name, a := range f.by {
		loads = append(loads, ProcessLoad{Name: name, Requests: a.n, MeanFirstResponse: a.sum / float64(a.n)})
	}
	MarkHolders(loads, f.ITL())
	return loads
}

// ITL is the median inter-token latency of the measured rows in nanoseconds, 0 when there is none.
func (f *HolderFinder) ITL() float64 {
	if len(f.itls) == 0 {
		return 0
	}
	slices.Sort(f.itls)
	return Quantile(f.itls, .5)
}

// MarkHolders sets Holder and Reference of each process from the means, and sorts by name. Holders are the processes whose mean time to first
// response is at least a quarter of the slowest's and exceeds the median process's by 3 times or by 3 inter-token latencies (itl, nanoseconds),
// whichever is larger. (Of an even number of processes the lower middle one is the median, so that half of them may hold.) The reference's rule is the
// first half alone; it calls every process a holder when all answer alike.
func MarkHolders(loads []ProcessLoad, itl float64) {
	if len(loads) == 0 {
		return
	}
	slices.SortFunc(loads, func(a, b ProcessLoad) int { return cmp.Compare(a.MeanFirstResponse, b.MeanFirstResponse) })
	slowest := loads[len(loads)-1].MeanFirstResponse
	median := loads[(len(loads)-1)/2].MeanFirstResponse
	limit := max(3*median, median+3*itl)
	for i := range loads {
		l := &loads[i]
		l.Reference = l.MeanFirstResponse >= slowest/4
		l.Holder = l.Reference && l.MeanFirstResponse > limit
	}
	slices.SortFunc(loads, func(a, b ProcessLoad) int { return cmp.Compare(a.Name, b.Name) })
}

// CountHolders counts by both rules.
func CountHolders(loads []ProcessLoad) (holders, reference int) {
	for _, l := range loads {
		if l.Holder {
			holders++
		}
		if l.Reference {
			reference++
		}
	}
	return holders, reference
}
