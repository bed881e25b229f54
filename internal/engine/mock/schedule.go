package mock

import (
	"math"
	"math/rand/v2"
	"time"
)

// spread is how far a draw may be from its mean.
const spread = 0.7

// draw returns a normally distributed duration, kept within 70% of the mean.
func draw(r *rand.Rand, mean, stdDev time.Duration) time.Duration {
	if stdDev <= 0 || mean <= 0 {
		return mean
	}
	m := float64(mean)
	d := m + r.NormFloat64()*float64(stdDev)
	return time.Duration(min(max(d, m*(1-spread)), m*(1+spread)))
}

// Phase is where in the interval of passes those of engine index of count stand, 0 <= Phase < interval. The engines of
// a process are spread evenly; seed moves them all by less than the distance of two, so that the engines of several
// processes fall between each other. Consecutive seeds are placed best (golden ratio).
func Phase(index, count int, seed uint64, interval time.Duration) time.Duration {
	const phi = 0.6180339887498949
	_, shift := math.Modf(float64(seed%(1<<20)) * phi)
	p := time.Duration((float64(index) + shift) / float64(count) * float64(interval))
	return min(max(p, 0), interval-1)
}

// schedule is the absolute time table of an engine's passes.
type schedule struct {
	mean, stdDev time.Duration
	rand         *rand.Rand
	next         time.Time // of the next pass
}

// newSchedule starts a time table whose passes stand at phase within the intervals of the wall clock, so that processes
// need not start together to be spread; from there on it follows the monotonic clock.
func newSchedule(now time.Time, mean, stdDev, phase time.Duration, r *rand.Rand) schedule {
	into := time.Duration(now.UnixNano() % int64(mean))
	s := schedule{mean: mean, stdDev: stdDev, rand: r, next: now.Add(phase - into)}
	s.skipTo(now)
	return s
}

// skipTo moves an idle engine's time table forward so that its next pass is not before now.
func (s *schedule) skipTo(now time.Time) (skipped int) {
	if behind := now.Sub(s.next); behind > 0 {
		n := (behind + s.mean - 1) / s.mean
		s.next = s.next.Add(n * s.mean)
		skipped = int(n)
	}
	return skipped
}

// take is called when the next pass runs at now. It returns how late that is and how many passes were missed in
// between, and moves the time table to the first pass after now.
func (s *schedule) take(now time.Time) (late time.Duration, skipped int) {
	late = now.Sub(s.next)
	s.next = s.next.Add(draw(s.rand, s.mean, s.stdDev))
	if !s.next.After(now) {
		// Strictly after: a pass that is due this very instant would be a second one.
		skipped = s.skipTo(now.Add(1))
	}
	return late, skipped
}
