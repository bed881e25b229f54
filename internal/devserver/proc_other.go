//go:build !unix

package devserver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const exeSuffix = ".exe"

// Signals that this system does not have; sending them fails with a clear error of the system.
var (
	sigTerm = syscall.SIGTERM
	sigStop = syscall.Signal(19)
	sigCont = syscall.Signal(18)
	sigKill = syscall.SIGKILL
)

func isolate(*exec.Cmd) {}

// lockFile takes a lock by making a file; one that is left behind by a killed process is taken over after 15 minutes.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	told := false
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
		if err == nil {
			return func() { f.Close(); os.Remove(path) }, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		if st, err := os.Stat(path); err == nil && time.Since(st.ModTime()) > 15*time.Minute {
			os.Remove(path)
			continue
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
