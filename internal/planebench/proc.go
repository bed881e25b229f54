package planebench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	// exitTimeout is how long a child may take to end after its standard input has.
	exitTimeout = 5 * time.Second
	tailLines   = 12
)

// ChildError says that a child process has ended, or failed, in the middle of a run.
type ChildError struct {
	Name  string // "worker 1"
	PID   int
	Err   error
	Log   []string // its last log lines
	Setup bool     // it never came up
}

func (e *ChildError) Error() string {
	s := fmt.Sprintf("%s (pid %d) has failed: %v", e.Name, e.PID, e.Err)
	if len(e.Log) > 0 {
		s += "; its last log lines: " + strings.Join(e.Log, " | ")
	}
	return s
}

func (e *ChildError) Unwrap() error { return e.Err }

// proc is a child process as the parent sees it. One goroutine uses it.
type proc struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *writer
	events chan message // what it says; closed when it has ended
	exited chan error   // capacity 1
	tail   *tail
	wg     sync.WaitGroup

	stopping bool
}

// startProc starts the program again as a child.
func startProc(cfg Config, role, name string) (*proc, error) {
	p := &proc{name: name, cmd: exec.Command(cfg.Exe, cfg.Args...), events: make(chan message, 8), exited: make(chan error, 1), tail: &tail{to: cfg.Stderr, name: name}}
	p.cmd.Env = append(os.Environ(), RoleEnv+"="+role)
	p.cmd.Stderr = p.tail
	p.cmd.WaitDelay = time.Second
	ownGroup(p.cmd) // a Ctrl-C at the terminal is the parent's business
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.out = newWriter(p.in)
	p.wg.Go(func() {
		p.read(stdout)
		err := p.cmd.Wait()
		if err == nil {
			err = errors.New("it ended by itself")
		}
		p.exited <- err
		close(p.events)
	})
	return p, nil
}

func (p *proc) read(r io.Reader) {
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<20))
	for {
		var m message
		if dec.Decode(&m) != nil {
			_, _ = io.Copy(io.Discard, r) // so that it is not stuck in a write until it is told to end
			return
		}
		p.events <- m
	}
}

func (p *proc) send(m message) error {
	if err := p.out.send(m); err != nil {
		return p.failure(p.why(err))
	}
	return nil
}

// why is the exit status of a child that has ended, else err.
func (p *proc) why(err error) error {
	select {
	case exit := <-p.exited:
		p.exited <- exit
		return exit
	case <-time.After(time.Second): // a broken pipe comes before the exit status
		return err
	}
}

func (p *proc) failure(err error) error {
	return &ChildError{Name: p.name, PID: p.cmd.Process.Pid, Err: err, Log: p.tail.last()}
}

// stop ends the child: by its standard input, then by force. Idempotent.
func (p *proc) stop() {
	if p.stopping {
		return
	}
	p.stopping = true
	_ = p.in.Close()
	kill := time.AfterFunc(exitTimeout, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.events { // until it has ended
	}
	p.wg.Wait()
}

// group is the children of one run. One goroutine uses it.
type group struct{ procs []*proc }

// stop ends the frontends before the workers they talk to.
func (g *group) stop() {
	for i := len(g.procs) - 1; i >= 0; i-- {
		g.procs[i].stop()
	}
}

// await waits until every one of procs has sent an op, and returns what they sent. Any child that fails or ends meanwhile is an error.
func (g *group) await(ctx context.Context, timeout time.Duration, op string, procs []*proc) ([]message, error) {
	got := make([]message, len(procs))
	have := make([]bool, len(procs))
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	check := time.NewTicker(2 * time.Millisecond)
	defer check.Stop()
	for {
		missing := ""
		for _, p := range g.procs {
			for more := true; more; {
				select {
				case m, ok := <-p.events:
					if !ok {
						return nil, p.failure(p.why(errors.New("it has ended")))
					}
					if m.Op == opFailed {
						return nil, p.failure(errors.New(m.Error))
					}
					for i, q := range procs {
						if q == p && m.Op == op {
							got[i], have[i] = m, true
						}
					}
				default:
					more = false
				}
			}
		}
		for i, ok := range have {
			if !ok {
				missing = procs[i].name
			}
		}
		if missing == "" {
			return got, nil
		}
		select {
		case <-check.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-limit.C:
			return nil, fmt.Errorf("%s did not say %q in %v", missing, op, timeout)
		}
	}
}

func (g *group) tell(m message, procs []*proc) error {
	for _, p := range procs {
		if err := p.send(m); err != nil {
			return err
		}
	}
	return nil
}

// tail keeps the last lines of a child's log and passes all of them on.
type tail struct {
	name string
	to   io.Writer // nil: kept only

	mu    sync.Mutex
	lines []string
	part  string
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(t.part+string(b), "\n")
	t.part = lines[len(lines)-1]
	for _, l := range lines[:len(lines)-1] {
		if t.to != nil {
			fmt.Fprintf(t.to, "[%s] %s\n", t.name, l)
		}
		t.lines = append(t.lines, l)
	}
	if n := len(t.lines) - tailLines; n > 0 {
		t.lines = t.lines[n:]
	}
	return len(b), nil
}

func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := append([]string(nil), t.lines...)
	if t.part != "" {
		out = append(out, t.part)
	}
	return out
}
