//go:build unix && !linux

package cluster

import "syscall"

func deathSignal(*syscall.SysProcAttr) bool { return false }
