// Package holders has the rule by which a worker process counts as a holder: one that holds a share of the open
// requests and answers late. The plane page applies it to the present moment, a run report to a whole run.
package holders

import "slices"

// Judge marks the processes. Holders are those whose mean time to the first response is at least a quarter of the
// slowest's and exceeds the median process's by 3 times or by 3 inter-token latencies (itl), whichever is larger. Of an
// even number of processes the lower middle one is the median, so that half of them may hold. The reference's rule is
// the first half alone; it calls every process a holder when all answer alike. Means and itl are of one unit.
func Judge(means []float64, itl float64) (holder, reference []bool) {
	holder, reference = make([]bool, len(means)), make([]bool, len(means))
	if len(means) == 0 {
		return holder, reference
	}
	sorted := slices.Sorted(slices.Values(means))
	slowest, median := sorted[len(sorted)-1], sorted[(len(sorted)-1)/2]
	limit := max(3*median, median+3*itl)
	for i, m := range means {
		reference[i] = m >= slowest/4
		holder[i] = reference[i] && m > limit
	}
	return holder, reference
}
