package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/netns"
)

// diedOfTerminate is the state of a child that has no handler for the signal of terminate, where there are signals.
const diedOfTerminate = "signal: terminated"

// tailLines is how many of a child's last log lines stand in an error.
const tailLines = 5

// spec says how a child is run.
type spec struct {
	name string // in errors; the log is logs/NAME.log
	path string
	args []string
	env  []string
	log  string    // file that gets all of its output
	also io.Writer // gets its standard error too, when set
	// died is called once, by the child's own goroutine, when it ends without stop having been called. Nil: its end is expected.
	died func(*DiedError)
	in   *netns.Node // the network namespace that it runs in; nil = ours
	// cores are those that it is kept to, from its first instruction on, so that its runtime counts no others; empty = all.
	cores coreSet
}

// DiedError says that a child ended, and what it said last.
type DiedError struct {
	Name  string
	State string   // "exit status 1", "signal: killed"
	Last  []string // the last lines of its log
	Log   string   // the log file
}

func (e *DiedError) Error() string {
	s := fmt.Sprintf("%s ended unexpectedly (%s)", e.Name, e.State)
	if len(e.Last) > 0 {
		s += ", its last log lines: " + strings.Join(e.Last, " | ")
	}
	if e.Log != "" {
		s += " (all of them: " + e.Log + ")"
	}
	return s
}

// StopError says that a child did not end as it should when it was told to.
type StopError struct {
	Name  string
	State string
	Last  []string
	Log   string
}

func (e *StopError) Error() string {
	s := fmt.Sprintf("%s did not stop cleanly (%s)", e.Name, e.State)
	if len(e.Last) == 0 {
		return s + ", and logged nothing"
	}
	return s + fmt.Sprintf(", its last log lines: %s (all of them: %s)", strings.Join(e.Last, " | "), e.Log)
}

// child is one running process. stop may be called by several goroutines.
type child struct {
	spec
	cmd      *exec.Cmd
	stopping atomic.Bool
	killed   atomic.Bool
	once     sync.Once
	done     chan struct{} // closed when it has been waited for
	err      error         // of Wait; valid after done
}

// start runs a child. Its goroutine ends with it; stop joins both.
func start(s spec) (*child, error) {
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s: log file: %w", s.name, err)
	}
	defer out.Close() // the child has its own descriptor, or the copying goroutine is done before done is closed
	c := &child{spec: s, cmd: exec.Command(s.path, s.args...), done: make(chan struct{})}
	c.cmd.Env = s.env
	c.cmd.Stdout, c.cmd.Stderr = out, out
	var tee *os.File
	if s.also != nil {
		if tee, err = os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
			return nil, fmt.Errorf("%s: log file: %w", s.name, err)
		}
		c.cmd.Stderr = io.MultiWriter(tee, s.also)
		c.cmd.WaitDelay = 5 * time.Second // a grandchild that kept the pipe must not hold us up
	}
	isolate(c.cmd)
	started := make(chan error, 1)
	go func() {
		// The kernel tells a child of its parent's death when the thread that made it ends, so that thread must stay.
		runtime.LockOSThread()
		clean := true
		defer func() {
			if clean { // else the thread, which is kept to the child's cores, ends with its goroutine
				runtime.UnlockOSThread()
			}
		}()
		defer close(c.done)
		if tee != nil {
			defer tee.Close()
		}
		run := c.cmd.Start
		if s.in != nil {
			run = func() error { return s.in.Do(c.cmd.Start) }
		}
		if len(s.cores) > 0 {
			start := run
			run = func() (err error) { clean, err = onCores(s.cores, start); return err }
		}
		if err := run(); err != nil {
			started <- err
			return
		}
		started <- nil
		c.err = c.cmd.Wait()
		if !c.stopping.Load() && s.died != nil {
			s.died(c.diedError())
		}
	}()
	if err := <-started; err != nil {
		<-c.done
		return nil, fmt.Errorf("%s cannot be started: %w", s.name, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// state says how the child ended; call it after done or from its own goroutine.
func (c *child) state() string {
	if c.cmd.ProcessState != nil {
		return c.cmd.ProcessState.String()
	}
	return fmt.Sprint(c.err)
}

func (c *child) exitCode() int { return c.cmd.ProcessState.ExitCode() }

func (c *child) diedError() *DiedError {
	return &DiedError{Name: c.name, State: c.state(), Last: tail(c.log, tailLines), Log: c.log}
}

// running tells whether the child has not ended.
func (c *child) running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// stop tells the child to end, kills it when it has not after grace, and joins it. A child that was killed or that ends with an error although it
// was told to end gives a *StopError; one that had ended before gives nil, since its death was reported.
func (c *child) stop(grace time.Duration) error {
	if !c.running() {
		return nil
	}
	c.once.Do(func() {
		c.stopping.Store(true)
		if err := terminate(c.cmd.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
			c.kill()
		}
	})
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		c.kill()
		<-c.done
	}
	state, last := c.state(), tail(c.log, tailLines)
	switch {
	case c.killed.Load():
		state = fmt.Sprintf("killed after %s", grace)
	case c.err == nil:
		return nil
	case state == diedOfTerminate && len(last) == 0:
		return nil // it was told before it had begun, so that nothing caught the signal and there was nothing to clean up
	}
	return &StopError{Name: c.name, State: state, Last: last, Log: c.log}
}

// kill ends the child at once. It may have ended meanwhile, which is as good.
func (c *child) kill() {
	c.killed.Store(true)
	_ = c.cmd.Process.Kill()
}

// maxTail bounds how much of a log is read for its last lines.
const maxTail = 64 << 10

// tail reads the last lines of a file; nil when it cannot be read.
func tail(path string, n int) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > maxTail {
		if _, err := f.Seek(-maxTail, io.SeekEnd); err != nil {
			return nil
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTail))
	if err != nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-n):]
}
