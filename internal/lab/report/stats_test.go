package report

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// naive is the percentile by its definition: the smallest value that at least the share of all values does not exceed.
func naive(values []float64, perMille int) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	for _, v := range sorted {
		n := 0
		for _, u := range values {
			if u <= v {
				n++
			}
		}
		if n*1000 >= perMille*len(values) {
			return v
		}
	}
	return math.NaN()
}

func TestDistAgainstNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 10, 99, 100, 101, 1000, 1001} {
		v := make([]float64, n)
		for i := range v {
			v[i] = math.Floor(rng.ExpFloat64() * 50e6) // ns, with equal values among them
		}
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		mean := sum / float64(n)
		sq := 0.0
		for _, x := range v {
			sq += (x - mean) * (x - mean)
		}
		want := Dist{Avg: mean / 1e6, Min: slices.Min(v) / 1e6, P50: naive(v, 500) / 1e6, P90: naive(v, 900) / 1e6,
			P95: naive(v, 950) / 1e6,
			P99: naive(v, 990) / 1e6, P999: naive(v, 999) / 1e6, Max: slices.Max(v) / 1e6,
			Std: math.Sqrt(sq/float64(n)) / 1e6}
		got := *NewDist(slices.Clone(v))
		a, b := reflect.ValueOf(got), reflect.ValueOf(want)
		for i := range a.NumField() {
			if x, y := a.Field(i).Float(), b.Field(i).Float(); math.Abs(x-y) > 1e-9*max(1, math.Abs(y)) {
				t.Errorf("n=%d %s: %v, want %v", n, a.Type().Field(i).Name, x, y)
			}
		}
	}
	if NewDist(nil) != nil {
		t.Error("a distribution of nothing")
	}
}

func TestHistogramKeepsThreeDigits(t *testing.T) {
	h := NewGaps()
	for i := 1; i <= 1000; i++ {
		RecordGap(h, int64(i)*int64(time.Millisecond))
	}
	RecordGap(h, -5)
	d := DistOfHist(h)
	for got, want := range map[float64]float64{d.P50: 500, d.P90: 900, d.P99: 990, d.Max: 1000} {
		if math.Abs(got-want) > want/500 {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if DistOfHist(NewGaps()) != nil || DistOfHist(nil) != nil {
		t.Error("a distribution of no gap")
	}
}
