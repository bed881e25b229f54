//go:build unix

package childproc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// ExeSuffix ends the name of a program's file.
const ExeSuffix = ""

func isolate(cmd *exec.Cmd, wakes bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	sig := syscall.SIGKILL
	if wakes {
		sig = syscall.SIGCONT
	}
	dieWithParent(cmd.SysProcAttr, sig)
}

func terminate(p *os.Process) error {
	err := p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGCONT) // a paused process must run to end
	return err
}

// Pause stops the process where it is, and Resume lets it go on.
func (c *Child) Pause() error { return c.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (c *Child) Resume() error { return c.Signal(syscall.SIGCONT) }

// killGroup ends what a process has left in its group.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // mostly nobody is there

// LockFile takes an exclusive lock that ends with the process. waiting is called once when another process has it.
func LockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, err
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}
