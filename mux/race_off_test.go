//go:build !race

package mux

// underRace says that the race detector is on: loads are cut down.
const underRace = false
