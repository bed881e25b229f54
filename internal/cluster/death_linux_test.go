package cluster

import "syscall"

func deathSignal(a *syscall.SysProcAttr) bool { return a.Pdeathsig == syscall.SIGKILL }
