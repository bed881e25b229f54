package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program that a test runs. It ends with the test.
type Process struct {
	// Name is for messages; Admin and HTTP are where it was told to listen, "" where it was not.
	Name, Admin, HTTP string

	cmd  *exec.Cmd
	log  *tail
	done chan struct{} // closed when it has ended
	err  error         // after done
}

// Options say how a process is run beyond its command line.
type Options struct {
	Name string
	Env  []string            // all of it; nil: empty
	Attr syscall.SysProcAttr // root folder, user
	Dir  string
}

// Start runs a program. --admin-addr=HOST:PORT and --http-addr=HOST:PORT among args say where it can be asked.
func Start(t testing.TB, o Options, bin string, args ...string) *Process {
	t.Helper()
	p := &Process{Name: o.Name, log: &tail{}, done: make(chan struct{})}
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--admin-addr="); ok {
			p.Admin = v
		}
		if v, ok := strings.CutPrefix(a, "--http-addr="); ok {
			p.HTTP = v
		}
	}
	p.cmd = exec.Command(bin, args...)
	p.cmd.Env, p.cmd.Dir = o.Env, o.Dir
	if p.cmd.Env == nil {
		p.cmd.Env = []string{}
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	attr := o.Attr
	attr.Pdeathsig = syscall.SIGKILL // a test that is killed leaves nothing behind
	p.cmd.SysProcAttr = &attr
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", o.Name, err)
	}
	go func() { // joined by Wait and by the cleanup
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", p.Name, p.Log())
		}
	})
	return p
}

// Kill ends it at once and joins it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Wait joins it. The error is the one of exec.Cmd.Wait, or that it took longer than limit.
func (p *Process) Wait(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timer.C:
		return fmt.Errorf("%s still runs after %v", p.Name, limit)
	}
}

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Term asks it to leave (SIGTERM) and waits until it has. Any exit code but 0 is an error.
func (p *Process) Term(limit time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.Wait(limit)
}

// Log is the end of what it wrote.
func (p *Process) Log() string { return p.log.String() }

// Ready fails the test unless /readyz says yes within limit.
func (p *Process) Ready(t testing.TB, limit time.Duration) {
	t.Helper()
	Eventually(t, limit, p.Name+" becomes ready", func() error {
		select {
		case <-p.done:
			t.Fatalf("%s has ended: %v\n%s", p.Name, p.err, p.Log())
		default:
		}
		_, err := Get("http://" + p.Admin + "/readyz")
		return err
	})
}

// StatusError is an answer that was not 200.
type StatusError struct {
	URL, Body string
	Status    int
}

func (e *StatusError) Error() string { return fmt.Sprintf("%s: %d %s", e.URL, e.Status, e.Body) }

// Get reads a URL. An answer other than 200 is a *StatusError.
func Get(url string) ([]byte, error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: (&net.Dialer{}).DialContext}}
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &StatusError{URL: url, Status: resp.StatusCode, Body: strings.TrimSpace(string(body))}
	}
	return body, nil
}

// Run runs a program to its end and returns its exit code and what it wrote.
func Run(t testing.TB, env []string, bin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	if cmd.Env = env; env == nil {
		cmd.Env = []string{}
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", bin, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// tail keeps the end of what a process writes.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 16 << 10

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	if n := len(l.b) - tailBytes; n > 0 {
		l.b = append(l.b[:0], l.b[n:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}
