//go:build !unix

package cluster

import (
	"context"
	"os"
	"os/exec"
)

const exeSuffix = ".exe"

func isolate(*exec.Cmd) {}

// terminate kills: this system has no signal that asks a process to end.
func terminate(p *os.Process) error { return p.Kill() }

// lockFile locks nothing here: two cluster runs that build at the same moment may disturb each other, and one of them then says so.
func lockFile(context.Context, string, func()) (unlock func(), err error) { return func() {}, nil }
