package devserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
)

const (
	exitInUse  = 3                // the child's exit code for an address in use
	stopLimit  = 10 * time.Second // a graceful stop that takes longer becomes a kill
	startLimit = 60 * time.Second // a server that is not ready by then never will be
	logLines   = 100              // of its log that are kept
)

// errInUse says that the child could not have its address.
var errInUse = errors.New("address in use")

// readyLine is what the child prints when it takes clients.
type readyLine struct {
	Server    string   `json:"server"`
	PID       int      `json:"pid"`
	Endpoints []string `json:"endpoints"`
	URL       string   `json:"url"`
}

// process is one life of a server.
type process struct {
	*childproc.Child
	log   *childproc.Tail
	ready readyLine
}

// startProcess runs the binary and waits for its ready line.
func startProcess(ctx context.Context, binary string, args []string, stderr io.Writer) (*process, error) {
	p := &process{log: &childproc.Tail{Keep: logLines, To: stderr}}
	first := make(chan []byte, 1)
	var err error
	p.Child, err = childproc.Start(childproc.Spec{
		Name: "devservers", Path: binary, Args: args, Held: true, Stderr: p.log, Wakes: true,
		Read: func(r io.Reader) { // the first line counts
			br := bufio.NewReader(r)
			if line, err := br.ReadBytes('\n'); err == nil {
				first <- line
			}
			_, _ = io.Copy(io.Discard, br)
		},
	})
	if err != nil {
		return nil, err
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case data := <-first:
		if err := json.Unmarshal(data, &p.ready); err != nil {
			p.Kill()
			return nil, fmt.Errorf("unexpected first line %q: %w", data, err)
		}
		return p, nil
	case <-p.Done():
		if p.ExitCode() == exitInUse {
			return nil, fmt.Errorf("%w: %s", errInUse, p.logTail())
		}
		return nil, fmt.Errorf("ended at once (%v): %s", p.Err(), p.logTail())
	case <-limit.C:
		p.Kill()
		return nil, fmt.Errorf("not ready after %s: %s", startLimit, p.logTail())
	case <-ctx.Done():
		p.Kill()
		return nil, context.Cause(ctx)
	}
}

// stop ends the process gracefully, and by force when ctx ends or it takes too long. It always joins it.
func (p *process) stop(ctx context.Context) error {
	err := p.End(ctx, p.Terminate, stopLimit)
	_ = p.Stdin.Close() // it has ended
	return err
}

func (p *process) logTail() string { return strings.Join(p.log.Last(), "\n") }
