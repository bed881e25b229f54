package netns

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/netns"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// process is a program in a namespace. It ends with its test, or with the test's process.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // after done
}

// start runs a program; a nil node is the host's own network.
func start(t *testing.T, node *netns.Node, name, path string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(path, args...), log: filepath.Join(t.TempDir(), name+".log"),
		done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = cli.WithoutSettings(os.Environ())
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() { // ends with the process, which the test's end ends; its thread must live as long
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		run := p.cmd.Start
		if node != nil {
			run = func() error { return node.Do(p.cmd.Start) }
		}
		err := run()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, ok := p.ended(); !ok {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, p.tail())
		}
	})
	return p
}

func (p *process) ended() (error, bool) {
	select {
	case <-p.done:
		return p.err, true
	default:
		return nil, false
	}
}

func (p *process) text() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

func (p *process) tail() string {
	b := []byte(p.text())
	if len(b) > 6000 {
		b = b[len(b)-6000:]
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	return string(b)
}

// address waits until the log has key=ADDRESS.
func (p *process) address(t *testing.T, key string) string {
	t.Helper()
	var found string
	await(t, patience, p.name+" to say "+key, func() bool {
		if err, ok := p.ended(); ok {
			t.Fatalf("%s has ended: %v", p.name, err)
		}
		_, rest, ok := strings.Cut(p.text(), " "+key+"=")
		if line, _, whole := strings.Cut(rest, "\n"); ok && whole {
			found, _, _ = strings.Cut(line, " ")
		}
		return found != ""
	})
	return found
}

// stop asks the process to end, which it must do with exit code 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	p.wait(t, patience)
}

// wait waits for the process's own end, which must be orderly.
func (p *process) wait(t *testing.T, limit time.Duration) {
	t.Helper()
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("%s ended with %v", p.name, p.err)
		}
	case <-time.After(limit):
		t.Errorf("%s did not end within %s", p.name, limit)
	}
}

func await(t *testing.T, limit time.Duration, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", limit, what)
		}
	}
}

// output keeps what a program writes, for a reader beside it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
