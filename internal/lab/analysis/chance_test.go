package analysis

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestChance counts how often the ranges of runs of the same thing do not overlap.
func TestChance(t *testing.T) {
	for _, c := range []struct {
		a, b int
		want float64
	}{{5, 5, 126}, {5, 6, 231}, {6, 5, 231}, {7, 7, 1716}} {
		if got := chance(c.a, c.b); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%d and %d runs: 1 of %v, want %v", c.a, c.b, got, c.want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func() (lo, hi float64) {
		lo, hi = math.Inf(1), math.Inf(-1)
		for range 5 {
			v := rng.Float64()
			lo, hi = min(lo, v), max(hi, v)
		}
		return lo, hi
	}
	const tries = 200_000
	apart := 0
	for range tries {
		la, ha := draw()
		lb, hb := draw()
		if la > hb || lb > ha {
			apart++
		}
	}
	if got := tries / float64(apart); math.Abs(got-126) > 10 {
		t.Errorf("apart in 1 of %.0f", got)
	}
}
