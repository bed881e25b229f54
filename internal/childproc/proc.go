package childproc

import (
	"bufio"
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

// Error says that a child process has ended, or failed, in the middle of a run.
type Error struct {
	Name  string // "worker 1"
	PID   int
	Err   error
	Log   []string // its last log lines
	Setup bool     // it never came up
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s (pid %d) has failed: %v", e.Name, e.PID, e.Err)
	if len(e.Log) > 0 {
		s += "; its last log lines: " + strings.Join(e.Log, " | ")
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Program is how a child is started.
type Program struct {
	Exe  string
	Args []string
	Env  []string // added to the parent's
	// Stderr takes what the child logs; nil: only the last lines of one that fails are kept, for its error.
	Stderr io.Writer
}

// Proc is a child process as the parent sees it. One goroutine uses it.
type Proc[M Message] struct {
	Name string
	Cmd  *exec.Cmd

	in     io.WriteCloser
	out    *Writer[M]
	events chan M     // what it says; closed when it has ended
	exited chan error // capacity 1
	tail   *tail
	wg     sync.WaitGroup

	stopping bool
}

// Start starts a child. Stop must be called.
func Start[M Message](prog Program, name string) (*Proc[M], error) {
	p := &Proc[M]{Name: name, Cmd: exec.Command(prog.Exe, prog.Args...), events: make(chan M, 8), exited: make(chan error, 1), tail: &tail{to: prog.Stderr, name: name}}
	p.Cmd.Env = append(os.Environ(), prog.Env...)
	p.Cmd.Stderr = p.tail
	p.Cmd.WaitDelay = time.Second
	ownGroup(p.Cmd) // a Ctrl-C at the terminal is the parent's business
	var err error
	if p.in, err = p.Cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.Cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.out = NewWriter[M](p.in)
	p.wg.Go(func() {
		p.read(stdout)
		err := p.Cmd.Wait()
		if err == nil {
			err = errors.New("it ended by itself")
		}
		p.exited <- err
		close(p.events)
	})
	return p, nil
}

func (p *Proc[M]) read(r io.Reader) {
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<20))
	for {
		var m M
		if dec.Decode(&m) != nil {
			_, _ = io.Copy(io.Discard, r) // so that it is not stuck in a write until it is told to end
			return
		}
		p.events <- m
	}
}

// Send gives the child a command.
func (p *Proc[M]) Send(m M) error {
	if err := p.out.Send(m); err != nil {
		return p.failure(p.why(err))
	}
	return nil
}

// why is the exit status of a child that has ended, else err.
func (p *Proc[M]) why(err error) error {
	select {
	case exit := <-p.exited:
		p.exited <- exit
		return exit
	case <-time.After(time.Second): // a broken pipe comes before the exit status
		return err
	}
}

func (p *Proc[M]) failure(err error) error {
	return &Error{Name: p.Name, PID: p.Cmd.Process.Pid, Err: err, Log: p.tail.last()}
}

// Stop ends the child: by its standard input, then by force. Idempotent.
func (p *Proc[M]) Stop() {
	if p.stopping {
		return
	}
	p.stopping = true
	_ = p.in.Close()
	kill := time.AfterFunc(exitTimeout, func() { _ = p.Cmd.Process.Kill() })
	defer kill.Stop()
	for range p.events { // until it has ended
	}
	p.wg.Wait()
}
