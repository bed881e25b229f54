// Package programs runs the real programs for tests.
package programs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/cluster"
)

const patience = time.Minute

// Build makes the programs once.
var Build = sync.OnceValues(func() (cluster.Programs, error) {
	return cluster.BuildPrograms(context.Background(), false, func(s string) { fmt.Fprintln(os.Stderr, s) })
})

// output is what a process has written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Process is a running program.
type Process struct {
	name string
	log  output
	done chan struct{}
}

// Start runs a program until the test ends.
func Start(t *testing.T, name, path string, args ...string) *Process {
	t.Helper()
	p := &Process{name: name, done: make(chan struct{})}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(p.done) }() // joined by the cleanup
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-p.done:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-p.done
		}
		if t.Failed() {
			lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
			t.Logf("log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-12):], "\n"))
		}
	})
	return p
}

// Says waits for a line of the log and returns one of its values.
func (p *Process) Says(t *testing.T, msg, key string) string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, "msg="+msg) {
				_, v, _ := strings.Cut(line, " "+key+"=")
				v, _, _ = strings.Cut(v, " ")
				return "http://" + strings.TrimSpace(v)
			}
		}
		select {
		case <-p.done:
			t.Fatalf("%s has ended: %s", p.name, p.log.String())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not say %s: %s", p.name, msg, p.log.String())
		}
	}
}

// Get is what an address answers.
func Get(t *testing.T, url string) string {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Metric is the sum of a process's metrics of that name whose labels have all words.
func Metric(t *testing.T, admin, name string, words ...string) float64 {
	t.Helper()
	sum := 0.0
next:
	for line := range strings.Lines(Get(t, admin+"/metrics")) {
		label, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, _, _ := strings.Cut(label, "{"); n != name {
			continue
		}
		for _, w := range words {
			if !strings.Contains(label, w) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += v
	}
	return sum
}
