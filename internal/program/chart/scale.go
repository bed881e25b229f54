package chart

import (
	"math"
	"slices"
	"strconv"
)

// Scale is how an axis turns values into places.
type Scale int

// The scales. Log leaves out what is not above 0. Nines is for shares from 0 to below 1: each nine (90%, 99%, 99.9%)
// takes the same room.
const (
	Linear Scale = iota
	Log
	Nines
)

// place is the value's place on the axis before it is stretched, NaN when it has none.
func (s Scale) place(v float64) float64 {
	switch s {
	case Log:
		if v <= 0 {
			return math.NaN()
		}
		return math.Log10(v)
	case Nines:
		if v < 0 || v >= 1 {
			return math.NaN()
		}
		return -math.Log10(1 - v)
	}
	return v
}

type tick struct {
	at   float64 // the value
	text string
}

// axis is a scale with its range and ticks.
type axis struct {
	scale  Scale
	lo, hi float64 // places
	ticks  []tick
}

// newAxis covers the values from lo to hi. A linear axis of values that are not negative begins at 0 when zero is set.
func newAxis(s Scale, lo, hi float64, zero bool) axis {
	switch s {
	case Log:
		return logAxis(lo, hi)
	case Nines:
		return ninesAxis(hi)
	}
	if zero && lo >= 0 {
		lo = 0
	}
	if hi <= lo {
		hi = lo + max(1, math.Abs(lo)/10)
	}
	step := niceStep((hi - lo) / 5)
	a := axis{scale: s, lo: math.Floor(lo/step+1e-9) * step, hi: math.Ceil(hi/step-1e-9) * step}
	for i := 0; ; i++ {
		v := a.lo + float64(i)*step
		if v > a.hi+step/2 {
			return a
		}
		a.ticks = append(a.ticks, tick{v, number(v, step)})
	}
}

// tighten cuts a linear axis to the values, where there are at least two: along X the room beyond the last is wasted.
func (a *axis) tighten(lo, hi float64) {
	if hi <= lo {
		return
	}
	a.hi = hi
	if lo < a.lo || lo > (hi-lo)/10 {
		a.lo = lo
	}
	a.ticks = slices.DeleteFunc(a.ticks, func(t tick) bool { return t.at < a.lo || t.at > a.hi })
}

// wholeAxis has a tick for each whole number, or for each so many that they can be read, and half a number of room at
// both ends.
func wholeAxis(lo, hi float64) axis {
	from, to := math.Round(lo), math.Round(hi)
	a := axis{scale: Linear, lo: from - .5, hi: to + .5}
	step := max(1, niceStep((to-from)/10))
	for v := math.Ceil(from/step) * step; v <= to; v += step {
		a.ticks = append(a.ticks, tick{v, number(v, 1)})
	}
	return a
}

// niceStep is the smallest of 1, 2, 5 times a power of ten that is not below v.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= v*(1-1e-9) {
			return m * p
		}
	}
	return 10 * p
}

func logAxis(lo, hi float64) axis {
	if lo <= 0 || hi < lo {
		lo, hi = 1, 10
	}
	steps := []float64{1, 2, 5}
	if math.Log10(hi/lo) > 3 {
		steps = steps[:1]
	}
	var all []float64
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, m := range steps {
			all = append(all, m*math.Pow(10, e))
		}
	}
	// The last tick that is not above lo, to the first that is not below hi.
	from, to := 0, len(all)-1
	for from+1 < len(all) && all[from+1] <= lo*(1+1e-9) {
		from++
	}
	for to-1 > from && all[to-1] >= hi*(1-1e-9) {
		to--
	}
	a := axis{scale: Log, lo: math.Log10(all[from]), hi: math.Log10(all[to])}
	for _, v := range all[from : to+1] {
		a.ticks = append(a.ticks, tick{v, number(v, v)})
	}
	return a
}

func ninesAxis(hi float64) axis {
	a := axis{scale: Nines, lo: 0, hi: 1}
	if p := Nines.place(hi); p > 1 {
		a.hi = p
	}
	a.ticks = []tick{{0, "0%"}, {.5, "50%"}}
	for n, v := 1, .9; float64(n) <= a.hi+1e-9; n, v = n+1, 1-(1-v)/10 {
		a.ticks = append(a.ticks, tick{v, strconv.FormatFloat(v*100, 'f', max(0, n-2), 64) + "%"})
	}
	return a
}

// number writes a tick with as many decimals as the step needs, and thousands apart.
func number(v, step float64) string {
	dec := 0
	if step < 1 && step > 0 {
		dec = int(math.Ceil(-math.Log10(step) - 1e-9))
	}
	if math.Abs(v) < step/1e6 {
		v = 0
	}
	if math.Abs(v) >= 1e7 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return Thousands(strconv.FormatFloat(v, 'f', dec, 64))
}

// Thousands puts a comma between each three digits before the point.
func Thousands(s string) string {
	sign := ""
	if len(s) > 0 && s[0] == '-' {
		sign, s = "-", s[1:]
	}
	end := len(s)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			end = i
			break
		}
	}
	out := s[end:]
	for end > 3 {
		out, end = ","+s[end-3:end]+out, end-3
	}
	return sign + s[:end] + out
}
