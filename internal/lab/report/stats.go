package report

import (
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// msPerNs turns nanoseconds into the milliseconds of the report.
const msPerNs = 1e-6

// NewDist computes the distribution of values in nanoseconds. It sorts them in place. It returns nil for none.
func NewDist(ns []float64) *Dist {
	if len(ns) == 0 {
		return nil
	}
	slices.Sort(ns)
	sum := 0.0
	for _, v := range ns {
		sum += v
	}
	mean := sum / float64(len(ns))
	sq := 0.0
	for _, v := range ns {
		sq += (v - mean) * (v - mean)
	}
	q := func(p float64) float64 { return Quantile(ns, p) * msPerNs }
	return &Dist{
		Avg: mean * msPerNs, Min: ns[0] * msPerNs, P50: q(.50), P90: q(.90), P95: q(.95), P99: q(.99), P999: q(.999),
		Max: ns[len(ns)-1] * msPerNs, Std: math.Sqrt(sq/float64(len(ns))) * msPerNs,
	}
}

// Quantile returns the smallest of the sorted values that at least the share p of them does not exceed (nearest rank).
// NaN for none.
func Quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	// The small amount keeps .99*100, which is 99.00000000000001 in floating point, at rank 99.
	rank := int(math.Ceil(p*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// NewGaps returns the histogram for gaps between chunks: nanoseconds, 3 significant digits, up to an hour (longer ones
// count as an hour).
func NewGaps() *hdrhistogram.Histogram { return hdrhistogram.New(1000, maxGap, 3) }

const maxGap = int64(3600e9)

// RecordGap adds one gap in nanoseconds.
func RecordGap(h *hdrhistogram.Histogram, ns int64) {
	// The value is within bounds, so RecordValue cannot fail.
	_ = h.RecordValue(min(max(ns, 0), maxGap))
}

// DistOfHist is the distribution of a histogram of nanoseconds, nil when it is nil or empty.
func DistOfHist(h *hdrhistogram.Histogram) *Dist {
	if h == nil || h.TotalCount() == 0 {
		return nil
	}
	q := func(p float64) float64 { return float64(h.ValueAtPercentile(p)) * msPerNs }
	return &Dist{
		Avg: h.Mean() * msPerNs, Min: float64(h.Min()) * msPerNs, P50: q(50), P90: q(90), P95: q(95), P99: q(99),
		P999: q(99.9),
		Max:  float64(h.Max()) * msPerNs, Std: h.StdDev() * msPerNs,
	}
}
