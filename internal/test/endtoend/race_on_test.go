//go:build linux && race

package endtoend

// scale divides the load: under the race detector the test itself takes most of the machine.
const scale = 3
