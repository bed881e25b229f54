//go:build unix && !linux

package children

import "syscall"

func parentDeath(*syscall.SysProcAttr) {}
