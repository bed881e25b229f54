//go:build unix

package children

import (
	"os/exec"
	"syscall"
)

// isolate gives the program a process group, so that Ctrl-C in a terminal is this process's business, which then ends it in order.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	parentDeath(cmd.SysProcAttr)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
}

// killRest ends what the program has left in its group.
func killRest(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // mostly nobody is there
	}
}
