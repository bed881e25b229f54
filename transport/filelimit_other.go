//go:build !unix

package transport

// FileLimit is not known on this system.
func FileLimit() (limit uint64, ok bool) { return 0, false }
