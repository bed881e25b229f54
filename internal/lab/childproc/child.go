package childproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"
)

// pipeGrace is how long a grandchild that kept a pipe may hold up the end of its parent.
const pipeGrace = 5 * time.Second

// Spec says how a child process is started.
type Spec struct {
	Name string // in errors
	Dir  string
	Path string
	Args []string
	Env  []string // nil: this process's
	// Held gives the child a standard input that ends when this process does, or when Child.Stdin is closed.
	Held           bool
	Stdout, Stderr io.Writer
	// Read reads the child's standard output to its end, instead of Stdout. The child's own goroutine calls it.
	Read func(io.Reader)
	// Around calls start, with the thread set up as the child is to inherit it. clean says that the thread is as it
	// was.
	Around func(start func() error) (clean bool, err error)
	// Wakes has a child that may be paused be woken when this process dies, so that it finds its standard input closed.
	// The others are killed then. Only Linux can do either.
	Wakes bool
	// Ended is called once by the child's own goroutine when the child has ended, before Done is closed.
	Ended func(*Child)
}

// Child is a running process in a process group of its own: Ctrl-C at the terminal is this process's business, which
// then ends its children in order. Its methods may be called concurrently.
type Child struct {
	Name  string
	Cmd   *exec.Cmd      // of a process that has been started
	Stdin io.WriteCloser // with Spec.Held

	asked, killed atomic.Bool
	done          chan struct{}
	err           error
}

// Start starts a process. Its goroutine ends with it; End joins both.
func Start(s Spec) (*Child, error) {
	c := &Child{Name: s.Name, Cmd: exec.Command(s.Path, s.Args...), done: make(chan struct{})}
	c.Cmd.Dir, c.Cmd.Env, c.Cmd.Stdout, c.Cmd.Stderr, c.Cmd.WaitDelay = s.Dir, s.Env, s.Stdout, s.Stderr, pipeGrace
	isolate(c.Cmd, s.Wakes)
	var stdout io.Reader
	var err error
	if s.Held {
		if c.Stdin, err = c.Cmd.StdinPipe(); err != nil {
			return nil, fmt.Errorf("start %s: %w", s.Name, err)
		}
	}
	if s.Read != nil {
		if stdout, err = c.Cmd.StdoutPipe(); err != nil {
			return nil, fmt.Errorf("start %s: %w", s.Name, err)
		}
	}
	started := make(chan error, 1)
	go func() { // ends with the process
		defer close(c.done)
		// The kernel tells a child of its parent's death when the thread that made it ends, so that thread must stay.
		runtime.LockOSThread()
		clean, err := true, error(nil)
		defer func() {
			if clean { // else the thread, which is not as it was, ends with its goroutine
				runtime.UnlockOSThread()
			}
		}()
		if s.Around != nil {
			clean, err = s.Around(c.Cmd.Start)
		} else {
			err = c.Cmd.Start()
		}
		started <- err
		if err != nil {
			return
		}
		if s.Read != nil {
			s.Read(stdout)
		}
		c.err = c.Cmd.Wait()
		if s.Ended != nil {
			s.Ended(c)
		}
	}()
	if err := <-started; err != nil {
		<-c.done
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	return c, nil
}

// PID is the process's number.
func (c *Child) PID() int { return c.Cmd.Process.Pid }

// Done is closed when the process has ended and been waited for.
func (c *Child) Done() <-chan struct{} { return c.done }

// Running tells whether it has not ended.
func (c *Child) Running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Err is how it ended, nil for exit code 0. Valid after Done, and in Ended.
func (c *Child) Err() error { return c.err }

// ExitCode is -1 for a process that a signal has ended. Valid as Err.
func (c *Child) ExitCode() int { return c.Cmd.ProcessState.ExitCode() }

// State says in words how it ended: "exit status 1". Valid as Err.
func (c *Child) State() string {
	if c.Cmd.ProcessState != nil {
		return c.Cmd.ProcessState.String()
	}
	return fmt.Sprint(c.err)
}

// Asked tells whether End or Kill was called: the process did not end by itself.
func (c *Child) Asked() bool { return c.asked.Load() }

// Killed tells whether it had to be killed.
func (c *Child) Killed() bool { return c.killed.Load() }

// Signal sends a signal; os.ErrProcessDone when it has ended.
func (c *Child) Signal(sig os.Signal) error {
	if !c.Running() {
		return os.ErrProcessDone
	}
	return c.Cmd.Process.Signal(sig)
}

// Terminate tells the process to end, also when it is paused.
func (c *Child) Terminate() error { return terminate(c.Cmd.Process) }

// Kill ends the process at once and joins it.
func (c *Child) Kill() {
	if c.Running() {
		c.asked.Store(true)
		c.killed.Store(true)
		_ = c.Cmd.Process.Kill() // it may have ended meanwhile, which is as good
	}
	<-c.done
}

// ErrKilled says that a process did not end in time when it was told to.
var ErrKilled = errors.New("killed")

// End tells the process to end by calling ask (Terminate, Stdin.Close), kills it when it has not after grace or when
// ctx ends, and joins it. It returns how the process ended; one that was killed gives ErrKilled with the reason. It
// may be called by several goroutines and again.
func (c *Child) End(ctx context.Context, ask func() error, grace time.Duration) error {
	if !c.Running() {
		return c.err
	}
	if !c.asked.Swap(true) {
		if err := ask(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			c.Kill()
		}
	}
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		c.Kill()
		return fmt.Errorf("%w: it did not stop within %s", ErrKilled, grace)
	case <-ctx.Done():
		c.Kill()
		return fmt.Errorf("%w before it had stopped: %w", ErrKilled, context.Cause(ctx))
	}
	if c.Killed() {
		return ErrKilled
	}
	return c.err
}
