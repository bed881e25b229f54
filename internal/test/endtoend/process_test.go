//go:build linux

package endtoend

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits for which there is no other bound.
const patience = time.Minute

// programs are built once, from this checkout.
var programs = sync.OnceValues(func() (cluster.Programs, error) {
	return cluster.BuildPrograms(context.Background(), false,
		func(s string) { fmt.Fprintln(os.Stderr, "endtoend: "+s) })
})

// process is a child. It dies with the test, however that ends.
type process struct {
	name string
	cmd  *exec.Cmd
	log  logBuffer
	done chan struct{}
}

// logBuffer is a child's log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func start(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.WaitDelay = 5 * time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the child dies when the thread that made it does
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(20 * time.Second):
			p.kill()
		}
		if t.Failed() {
			lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
			t.Logf("log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	})
	return p
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) } // one that has ended is as good

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// exit waits for the process's end and returns its code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(2 * patience):
		t.Fatalf("%s does not end", p.name)
		return -1
	}
}

// says waits until a line of the log has all words, and returns the line.
func (p *process) says(t *testing.T, words ...string) string {
	t.Helper()
	var found string
	eventually(t, fmt.Sprintf("%s to say %q", p.name, words), func() bool {
		if lines := p.lines(words...); len(lines) > 0 {
			found = lines[0]
			return true
		}
		select {
		case <-p.done:
			t.Fatalf("%s has ended: %s", p.name, p.log.String())
		default:
		}
		return false
	})
	return found
}

// lines are those that have all words.
func (p *process) lines(words ...string) []string {
	var out []string
next:
	for line := range strings.Lines(p.log.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		out = append(out, line)
	}
	return out
}

// field is a value of a log line.
func field(line, key string) string {
	_, rest, _ := strings.Cut(line, " "+key+"=")
	v, _, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(v)
}

// eventually waits until ok, and says how long it took.
func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > patience {
			t.Fatalf("no %s in %v", what, patience)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}
