package benchtable

import "slices"

// Order is that of the arms in a repetition, the first of which is 0: every other one goes the other way round, so that
// a machine that slows down favours nobody.
func Order[T any](arms []T, repetition int) []T {
	order := slices.Clone(arms)
	if repetition%2 == 1 {
		slices.Reverse(order)
	}
	return order
}
