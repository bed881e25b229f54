package planebench

import "github.com/laneway-ai/laneway/internal/lab/childproc"

// ChildError says that a child process has ended, or failed, in the middle of a run.
type ChildError = childproc.Error

type (
	proc   = childproc.Proc[message]
	writer = childproc.Writer[message]
)

// group is the children of one run.
type group struct{ childproc.Group[message] }

// Operation implements childproc.Message.
func (m message) Operation() string { return m.Op }

// Failure implements childproc.Message.
func (m message) Failure() string { return m.Error }

// startProc starts the program again as a child.
func startProc(cfg Config, role, name string) (*proc, error) {
	return childproc.StartProc[message](childproc.Program{Exe: cfg.Exe, Args: cfg.Args,
		Env: []string{RoleEnv + "=" + role}, Stderr: cfg.Stderr}, name)
}
