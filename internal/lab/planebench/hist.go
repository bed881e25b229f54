package planebench

import (
	"math/bits"
	"sync/atomic"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

const (
	histSub     = 7 // 2^7 buckets for each power of two: a value is known to 1 part in 128
	histBuckets = (40 - histSub + 1) << histSub
)

// hist counts durations in nanoseconds, up to 18 minutes; longer ones count as that. It may be added to concurrently
// and costs no allocation and no lock.
type hist struct{ counts [histBuckets]atomic.Uint64 }

func (h *hist) add(ns int64) { h.counts[bucket(ns)].Add(1) }

func bucket(ns int64) int {
	v := uint64(max(ns, 0))
	shift := max(bits.Len64(v)-histSub-1, 0)
	return min(shift<<histSub+int(v>>shift), histBuckets-1)
}

// middle is the value that stands for a bucket.
func middle(i int) int64 {
	shift := max(i>>histSub-1, 0)
	low := int64(i-shift<<histSub) << shift
	return low + (int64(1)<<shift)/2
}

func (h *hist) reset() {
	for i := range h.counts {
		h.counts[i].Store(0)
	}
}

// Counts are the buckets of a histogram that hold something, as they travel between processes.
type Counts map[int]uint64

func (h *hist) snapshot() Counts {
	c := make(Counts)
	for i := range h.counts {
		if n := h.counts[i].Load(); n > 0 {
			c[i] = n
		}
	}
	return c
}

func (c Counts) addAll(o Counts) {
	for i, n := range o {
		c[i] += n
	}
}

// dist is the distribution in milliseconds, nil of nothing.
func (c Counts) dist() *report.Dist {
	g := report.NewGaps()
	for i, n := range c {
		// What is shorter than the histogram's least value counts as that; the value is within its bounds.
		_ = g.RecordValues(max(middle(i), 1), int64(n))
	}
	return report.DistOfHist(g)
}
