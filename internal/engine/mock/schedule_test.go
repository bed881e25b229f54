package mock

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPhasesAreSpread(t *testing.T) {
	const engines, processes = 64, 8
	var all []time.Duration
	for p := range processes {
		for i := range engines {
			ph := Phase(i, engines, uint64(p), itl)
			if ph < 0 || ph >= itl {
				t.Fatalf("phase %v is outside of the interval", ph)
			}
			all = append(all, ph)
		}
	}
	slices.Sort(all)
	even := itl / (engines * processes)
	largest := all[0] + itl - all[len(all)-1]
	for i := 1; i < len(all); i++ {
		gap := all[i] - all[i-1]
		if gap == 0 {
			t.Errorf("two engines have the phase %v", all[i])
		}
		largest = max(largest, gap)
	}
	if largest > 3*even {
		t.Errorf("the largest gap is %v, %v would be even", largest, even)
	}
	// Seeds as large as a hash keep within the process's own distance of two engines.
	for _, seed := range []uint64{1<<64 - 1, 1 << 40, 12345678901234567} {
		if p := Phase(1, 4, seed, itl); p < itl/4 || p >= itl/2 {
			t.Errorf("seed %d: phase %v of engine 1 of 4, want 50ms to 100ms", seed, p)
		}
	}
}

// TestPhasesInTime: the passes of engines stand where Phase says, whenever they were started.
func TestPhasesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now() // a bubble begins at a whole second
		c := new(counts)
		for i := range 4 {
			time.Sleep(37 * ms)
			e, err := Start(Config{Index: i, Count: 4, Flush: c.flush, Observer: c})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			w := newScript()
			w.start = zero
			if err := e.Submit(req("a", 5), w); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_, at := w.tokens()
				for _, a := range at[1:] {
					if a%itl != Phase(i, 4, 0, itl) {
						t.Errorf("engine %d has a pass at %v, phase %v, want %v", i, a, a%itl, Phase(i, 4, 0, itl))
					}
				}
			}()
		}
		time.Sleep(3 * time.Second)
	})
}

func TestDraw(t *testing.T) {
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	var sum time.Duration
	lowest, highest := time.Hour, time.Duration(0)
	const n = 20000
	for range n {
		d := draw(a, 100*ms, 50*ms)
		if d != draw(b, 100*ms, 50*ms) {
			t.Fatal("the same seed gave another draw")
		}
		sum += d
		lowest, highest = min(lowest, d), max(highest, d)
	}
	if lowest != 30*ms || highest != 170*ms {
		t.Errorf("draws from %v to %v, want them clamped to 30ms and 170ms", lowest, highest)
	}
	if mean := sum / n; mean < 98*ms || mean > 102*ms {
		t.Errorf("mean %v, want 100ms", mean)
	}
	if d := draw(a, 100*ms, 0); d != 100*ms {
		t.Errorf("without deviation: %v", d)
	}
}

// TestSeeds: the same seed gives the same times, another one others.
func TestSeeds(t *testing.T) {
	times := func(seed uint64) (at []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			e, err := Start(Config{Seed: seed, TimeToFirstTokenStdDev: 10 * ms, InterTokenLatencyStdDev: 40 * ms,
				Flush: func() {}})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			w := submit(t, e, req("a", 20))
			time.Sleep(time.Minute)
			_, at = w.tokens()
		})
		return at
	}
	a, b, c := times(1), times(1), times(2)
	if !slices.Equal(a, b) {
		t.Errorf("seed 1 gave %v, then %v", a, b)
	}
	if slices.Equal(a, c) || len(a) != 20 {
		t.Errorf("seeds 1 and 2 both gave %v", a)
	}
	for i := 2; i < len(a); i++ {
		if gap := a[i] - a[i-1]; gap < 60*ms || gap > 340*ms {
			t.Errorf("passes %v apart, want 200ms +- 70%%", gap)
		}
	}
}

func TestSpeedup(t *testing.T) {
	run(t, Config{SpeedupRatio: 10}, func(t *testing.T, e *Engine, c *counts) {
		w := submit(t, e, req("a", 3))
		time.Sleep(time.Second)
		if _, at := w.tokens(); !slices.Equal(at, []time.Duration{2 * ms, 20 * ms, 40 * ms}) {
			t.Errorf("tokens at %v", at)
		}
	})
}
