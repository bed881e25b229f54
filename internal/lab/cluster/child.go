package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/lab/netns"
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
	// died is called once, by the child's own goroutine, when it ends without stop having been called. Nil: its end is
	// expected.
	died func(*DiedError)
	in   *netns.Node // the network namespace that it runs in; nil = ours
	// cores are those that it is kept to, from its first instruction on, so that its runtime counts no others; empty =
	// all.
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

// child is one running process with a log file. Its methods may be called by several goroutines.
type child struct {
	spec
	*childproc.Child
}

// start runs a child; stop joins it.
func start(s spec) (*child, error) {
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s: log file: %w", s.name, err)
	}
	c := &child{spec: s}
	p := childproc.Spec{Name: s.name, Path: s.path, Args: s.args, Env: s.env, Stdout: out, Stderr: out,
		Around: s.around}
	if s.also != nil {
		p.Stderr = io.MultiWriter(out, s.also)
	}
	p.Ended = func(e *childproc.Child) {
		_ = out.Close() // nobody writes to it any more
		if s.died != nil && !e.Asked() {
			s.died(diedError(s, e))
		}
	}
	if c.Child, err = childproc.Start(p); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return c, nil
}

// around starts a child in its network namespace and on its cores.
func (s spec) around(start func() error) (clean bool, err error) {
	run := start
	if s.in != nil {
		run = func() error { return s.in.Do(start) }
	}
	if len(s.cores) > 0 {
		return onCores(s.cores, run)
	}
	return true, run()
}

func diedError(s spec, c *childproc.Child) *DiedError {
	return &DiedError{Name: s.name, State: c.State(), Last: tail(s.log, tailLines), Log: s.log}
}

// stop tells the child to end, kills it when it has not after grace, and joins it. A child that was killed or that
// ends with an error although it was told to end gives a *StopError; one that had ended before gives nil, since its
// death was reported.
func (c *child) stop(grace time.Duration) error {
	if !c.Running() {
		return nil
	}
	err := c.End(context.Background(), c.Terminate, grace)
	if err == nil {
		return nil
	}
	state, last := c.State(), tail(c.log, tailLines)
	switch {
	case c.Killed():
		state = fmt.Sprintf("killed after %s", grace)
	case state == diedOfTerminate && len(last) == 0:
		// it was told before it had begun, so that nothing caught the signal and there was nothing to clean up
		return nil
	}
	return &StopError{Name: c.name, State: state, Last: last, Log: c.log}
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
