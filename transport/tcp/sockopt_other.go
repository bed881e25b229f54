//go:build !unix

package tcp

import "syscall"

// setOptions does nothing: this system has no way to set the buffers before connect that the code knows of.
func setOptions(uintptr, Config) error { return nil }

// granted does not know.
func granted(syscall.Conn) (recv, send int, err error) { return 0, 0, nil }
