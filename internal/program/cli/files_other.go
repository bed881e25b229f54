//go:build !unix

package cli

// RaiseFiles does nothing: this system has no such limit.
func RaiseFiles() error { return nil }

// FileLimit is not known here.
func FileLimit() (uint64, bool) { return 0, false }
