//go:build unix && !linux

package devserver

import "syscall"

// parentDeath does nothing here: the kernel sends SIGHUP and SIGCONT to a stopped process group that loses its last parent.
func parentDeath(*syscall.SysProcAttr) {}
