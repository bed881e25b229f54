//go:build unix && !linux

package cluster

import "syscall"

// parentDeath does nothing: this system cannot tie a child to its parent's life.
func parentDeath(*syscall.SysProcAttr) {}
