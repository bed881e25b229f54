package childproc

import "syscall"

// dieWithParent has the kernel signal a child whose parent is gone, however it went.
func dieWithParent(a *syscall.SysProcAttr, sig syscall.Signal) { a.Pdeathsig = sig }
