//go:build unix && !linux

package tcp

// setLowat does nothing: the option is used on Linux only.
func setLowat(int, int) error { return nil }
