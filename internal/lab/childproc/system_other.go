//go:build !unix

package childproc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// ExeSuffix ends the name of a program's file.
const ExeSuffix = ".exe"

func isolate(*exec.Cmd, bool) {}
func killGroup(int)           {}

// terminate kills: this system has no signal that asks a process to end.
func terminate(p *os.Process) error { return p.Kill() }

// Pause and Resume need signals that this system does not have.
func (c *Child) Pause() error { return errors.ErrUnsupported }

// Resume is as Pause.
func (c *Child) Resume() error { return errors.ErrUnsupported }

// LockFile takes a lock by making a file; one that is left behind by a killed process is taken over after 15 minutes.
func LockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
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
