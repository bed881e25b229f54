//go:build unix && !linux

package childproc

import "syscall"

// dieWithParent does nothing: this system cannot tie a child to its parent's life. (It sends SIGHUP and SIGCONT to a
// stopped process group that loses its last parent.)
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
