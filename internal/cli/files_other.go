//go:build !unix

package cli

// RaiseFiles does nothing: this system has no such limit.
func RaiseFiles() error { return nil }

func fileLimit() (uint64, bool) { return 0, false }
