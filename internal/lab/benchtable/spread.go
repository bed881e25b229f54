package benchtable

import (
	"fmt"
	"slices"
)

// Spread is the median and the range of a figure over repetitions.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

// SpreadOf is that of v, all zero of nothing.
func SpreadOf(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return Spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1], N: n}
}

// String is a ratio: median and range, "-" of nothing.
func (s Spread) String() string { return s.Text("%.2f", "-") }

// More is a difference with its sign: median and range, each in the format, "-" of nothing.
func (s Spread) More(format string) string { return s.Text(format, " to ") }

// Text is the median in the format with the range in brackets, which is left out of one value alone; "-" of nothing.
func (s Spread) Text(format, between string) string {
	switch s.N {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf(format, s.Median)
	}
	return fmt.Sprintf(format+" ["+format+between+format+"]", s.Median, s.Min, s.Max)
}

// RatioOf is that of a over b, repetition by repetition; where b is 0 there is none.
func RatioOf(a, b []float64) Spread {
	var v []float64
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			v = append(v, a[i]/b[i])
		}
	}
	return SpreadOf(v)
}
