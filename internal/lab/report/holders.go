package report

import (
	"cmp"
	"slices"

	"github.com/laneway-ai/laneway/internal/program/holders"
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

// FindHolders groups the measured rows by worker process and finds the holders; see HolderFinder. It returns nil when
// no row names its process.
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

// MarkHolders sets Holder and Reference of each process from the means, and sorts by name; itl is in nanoseconds.
func MarkHolders(loads []ProcessLoad, itl float64) {
	means := make([]float64, len(loads))
	for i := range loads {
		means[i] = loads[i].MeanFirstResponse
	}
	holder, reference := holders.Judge(means, itl)
	for i := range loads {
		loads[i].Holder, loads[i].Reference = holder[i], reference[i]
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
