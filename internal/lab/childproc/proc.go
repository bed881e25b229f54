package childproc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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

// Proc is such a child as the parent sees it. One goroutine uses it.
type Proc[M Message] struct {
	*Child
	out      *Writer[M]
	events   chan M // what it says; closed when it has ended
	tail     *Tail
	stopping bool
}

// StartProc starts a child that talks. Stop must be called.
func StartProc[M Message](prog Program, name string) (*Proc[M], error) {
	p := &Proc[M]{events: make(chan M, 8), tail: &Tail{Keep: tailLines, To: prog.Stderr, Prefix: "[" + name + "] "}}
	var err error
	p.Child, err = Start(Spec{
		Name: name, Path: prog.Exe, Args: prog.Args, Env: append(os.Environ(), prog.Env...), Held: true, Stderr: p.tail,
		Read:  p.read,
		Ended: func(*Child) { close(p.events) },
	})
	if err != nil {
		return nil, err
	}
	p.out = NewWriter[M](p.Stdin)
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
	case <-p.Done():
	case <-time.After(time.Second): // a broken pipe comes before the exit status
		return err
	}
	if exit := p.Err(); exit != nil {
		return exit
	}
	return errors.New("it ended by itself")
}

func (p *Proc[M]) failure(err error) error {
	return &Error{Name: p.Name, PID: p.PID(), Err: err, Log: p.tail.Last()}
}

// Stop ends the child: by its standard input, then by force. Idempotent.
func (p *Proc[M]) Stop() {
	if p.stopping {
		return
	}
	p.stopping = true
	drained := make(chan struct{})
	go func() { // ends with the child
		defer close(drained)
		for range p.events {
		}
	}()
	_ = p.End(context.Background(), p.Stdin.Close, exitTimeout) // who wants to know how it ended looks at Cmd
	<-drained
}
