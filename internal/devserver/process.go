package devserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	exitInUse  = 3                // the child's exit code for an address in use
	stopLimit  = 10 * time.Second // a graceful stop that takes longer becomes a kill
	startLimit = 60 * time.Second // a server that is not ready by then never will be
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
	cmd   *exec.Cmd
	stdin io.Closer
	log   *tail
	ready readyLine

	done chan struct{} // closed when the process has ended and been waited for
	err  error         // how it ended; valid after done
}

// startProcess runs the binary and waits for its ready line.
func startProcess(ctx context.Context, binary string, args []string, stderr io.Writer) (*process, error) {
	p := &process{cmd: exec.Command(binary, args...), log: &tail{also: stderr}, done: make(chan struct{})}
	line := &firstLine{got: make(chan []byte, 1)}
	p.cmd.Stdout, p.cmd.Stderr = line, p.log
	p.cmd.WaitDelay = 5 * time.Second
	isolate(p.cmd)
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin

	started := make(chan error, 1)
	go func() {
		// The kernel tells a child of its parent's death when the thread that made it ends, so that thread must stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		if err := p.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = p.cmd.Wait()
	}()
	if err := <-started; err != nil {
		<-p.done
		stdin.Close()
		return nil, err
	}

	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case data := <-line.got:
		if err := json.Unmarshal(data, &p.ready); err != nil {
			p.kill()
			return nil, fmt.Errorf("unexpected first line %q: %w", data, err)
		}
		return p, nil
	case <-p.done:
		if p.cmd.ProcessState.ExitCode() == exitInUse {
			return nil, fmt.Errorf("%w: %s", errInUse, p.log)
		}
		return nil, fmt.Errorf("ended at once (%v): %s", p.err, p.log)
	case <-limit.C:
		p.kill()
		return nil, fmt.Errorf("not ready after %s: %s", startLimit, p.log)
	case <-ctx.Done():
		p.kill()
		return nil, context.Cause(ctx)
	}
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(sig os.Signal) error {
	if !p.running() {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(sig)
}

func (p *process) kill() {
	_ = p.signal(sigKill) // it may have ended meanwhile, which is as good
	<-p.done
}

// stop ends the process gracefully, and by force when ctx ends or it takes too long. It always joins it.
func (p *process) stop(ctx context.Context) error {
	if !p.running() {
		return p.err
	}
	_ = p.signal(sigTerm)
	_ = p.signal(sigCont) // a paused process must run to end
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-p.done:
		return p.err
	case <-limit.C:
		p.kill()
		return fmt.Errorf("did not stop within %s and was killed", stopLimit)
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("killed before it had stopped: %w", context.Cause(ctx))
	}
}

// firstLine hands over the first line that is written to it and drops the rest.
type firstLine struct {
	buf  []byte
	sent bool
	got  chan []byte
}

func (w *firstLine) Write(b []byte) (int, error) {
	if !w.sent {
		w.buf = append(w.buf, b...)
		if i := bytes.IndexByte(w.buf, '\n'); i >= 0 {
			w.sent = true
			w.got <- w.buf[:i]
		}
	}
	return len(b), nil
}

// tail keeps the last tailSize bytes of a log, and copies all of it to also when that is set.
type tail struct {
	also io.Writer
	mu   sync.Mutex
	buf  []byte
}

const tailSize = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	if t.also != nil {
		_, _ = t.also.Write(b) // the caller's writer must not stop the server
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if len(t.buf) > tailSize {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailSize:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}
