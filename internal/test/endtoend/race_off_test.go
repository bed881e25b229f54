//go:build linux && !race

package endtoend

// scale divides the load.
const scale = 1
