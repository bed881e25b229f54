package childproc

import (
	"context"
	"fmt"
	"io"
	"time"
)

// runGrace is how long a program that Run tells to end may take.
const runGrace = 20 * time.Second

// Command is a program to run to its end.
type Command struct {
	Dir, Path      string
	Args           []string
	Env            []string // nil: this process's
	Stdout, Stderr io.Writer
	Limit          time.Duration // 0 = none
}

// LimitError says that a program was ended because it took too long.
type LimitError struct{ Limit time.Duration }

func (e *LimitError) Error() string {
	return fmt.Sprintf("it took longer than %s and was ended", e.Limit)
}

// Run runs a program to its end and returns its exit code, -1 when it has none. When ctx ends or the limit is over it
// is told to end, and killed when it does not. What it has left in its process group ends with it.
func Run(ctx context.Context, c Command) (code int, err error) {
	if c.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Limit, &LimitError{c.Limit})
		defer cancel()
	}
	if ctx.Err() != nil {
		return -1, context.Cause(ctx)
	}
	p, err := Start(Spec{Name: c.Path, Dir: c.Dir, Path: c.Path, Args: c.Args, Env: c.Env, Stdout: c.Stdout,
		Stderr: c.Stderr})
	if err != nil {
		return -1, err
	}
	defer killGroup(p.PID())
	select {
	case <-p.Done():
		return p.ExitCode(), p.Err()
	case <-ctx.Done():
	}
	_ = p.End(context.WithoutCancel(ctx), p.Terminate, runGrace) // why it was ended says more than how
	return p.ExitCode(), context.Cause(ctx)
}
