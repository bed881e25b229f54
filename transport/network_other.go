//go:build !linux

package transport

// LocalNetwork is not known on this system.
func LocalNetwork() string { return "" }
