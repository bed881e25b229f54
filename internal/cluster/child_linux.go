package cluster

import "syscall"

// parentDeath has the kernel kill a child whose parent is gone, however it went: a killed cluster run leaves nothing behind.
func parentDeath(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
