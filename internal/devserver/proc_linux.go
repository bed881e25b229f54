package devserver

import "syscall"

// parentDeath wakes a paused child when its parent dies: it then finds its standard input closed, cleans up and ends.
func parentDeath(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGCONT }
