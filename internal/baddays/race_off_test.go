//go:build linux && !race

package baddays

// scale divides the load.
const scale = 1
