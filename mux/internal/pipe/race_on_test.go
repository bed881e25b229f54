//go:build race

package pipe

// underRace says whether the race detector is on, which allocates.
const underRace = true
