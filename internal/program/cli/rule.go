package cli

import (
	"fmt"
	"math"
)

// Rule says which values a number, size or duration may have. The zero Rule, Any, allows every value of a number and
// every value from 0 up of a size or duration.
type Rule struct {
	lo, hi       float64
	hasLo, hasHi bool
	zero         string // what 0 means, when 0 is allowed outside the range
	unit         string
	why          string // reason of the range
}

type number interface{ ~int | ~int64 | ~float64 }

// Any allows every value.
func Any() Rule { return Rule{} }

// Range allows lo to hi, both included. Use int for numbers and sizes (64*cli.KiB), time.Duration for durations.
func Range[T number](lo, hi T) Rule {
	if lo > hi {
		panic(fmt.Sprintf("cli: range %v to %v is empty", lo, hi))
	}
	return Rule{lo: float64(lo), hi: float64(hi), hasLo: true, hasHi: true}
}

// Min allows lo and everything above it.
func Min[T number](lo T) Rule { return Rule{lo: float64(lo), hasLo: true} }

// OrZero allows 0 too, outside the range, and says what it means: Range(1200, 1452).OrZero("discovery").
func (r Rule) OrZero(meaning string) Rule { r.zero = meaning; return r }

// Unit names the unit for help: "tokens". Sizes and durations carry theirs in the value.
func (r Rule) Unit(unit string) Rule { r.unit = unit; return r }

// Why gives the reason of the range; it stands in the complaint: "because the library never sends larger packets".
func (r Rule) Why(reason string) Rule { r.why = reason; return r }

// notNegative is the rule of sizes and durations that name no lower end.
func (r Rule) notNegative() Rule {
	if !r.hasLo {
		r.lo, r.hasLo = 0, true
	}
	return r
}

// check says what would be right when v is not; format writes a bound as the user would.
func (r Rule) check(v float64, format func(float64) string) error {
	if math.IsNaN(v) {
		return fmt.Errorf("is not a number: use %s", r.describe(format))
	}
	if v == 0 && r.zero != "" {
		return nil
	}
	if (r.hasLo && v < r.lo) || (r.hasHi && v > r.hi) {
		if r.why != "" {
			return fmt.Errorf("out of range: use %s, %s", r.describe(format), r.why)
		}
		return fmt.Errorf("out of range: use %s", r.describe(format))
	}
	return nil
}

// describe is the range in words, "" when everything is allowed.
func (r Rule) describe(format func(float64) string) string {
	var s string
	switch {
	case r.hasLo && r.hasHi:
		s = format(r.lo) + " to " + format(r.hi)
	case r.hasLo:
		s = format(r.lo) + " or more"
	case r.hasHi:
		s = format(r.hi) + " or less"
	}
	if r.zero != "" {
		switch {
		case s == "":
		case r.hasLo && r.lo <= 0: // 0 is in the range already
			s += ", "
		default:
			s += ", or "
		}
		s += "0 = " + r.zero
	}
	return s
}
