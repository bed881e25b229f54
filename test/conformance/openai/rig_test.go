// Package openai runs the official Go and Node clients of the OpenAI API against the real programs: a frontend, workers that fail in
// each way there is, etcd and NATS.
package openai

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

	"github.com/laneway-ai/laneway/internal/cluster"
	"github.com/laneway-ai/laneway/internal/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const patience = time.Minute

var programs = sync.OnceValues(func() (cluster.Programs, error) {
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

// process is a running program.
type process struct {
	name string
	log  output
	done chan struct{}
}

// start runs a program until the test ends.
func start(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	p := &process{name: name, done: make(chan struct{})}
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

// says waits for a line of the log and returns one of its values.
func (p *process) says(t *testing.T, msg, key string) string {
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

// rig is a cluster with a worker for each way in which a request can go.
type rig struct {
	url, admin string // of the frontend
	empty      string // of a frontend that has no worker
	workers    map[string]string
}

// The models of the rig's workers: what becomes of a request.
const (
	fine     = "fine"
	refuse   = "refuse"
	fails    = "fail"
	stall    = "stall"
	truncate = "truncate"
	lane     = "lane"
	// Each of these workers dies of its first request.
	killEarly = "kill-early"
	killLate  = "kill-late"
)

func newRig(t *testing.T, kills ...string) *rig {
	t.Helper()
	pr, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	etcd, nats := devtest.Etcd(t), devtest.NATS(t)
	common := func(name string, more ...string) []string {
		return append([]string{"--name=" + name, "--admin-addr=127.0.0.1:0", "--etcd-endpoints=" + strings.Join(etcd.Endpoints(), ","), "--nats-url=" + nats.URL()}, more...)
	}
	r := &rig{workers: make(map[string]string)}
	started := make(map[string]*process)
	for _, model := range append([]string{fine, refuse, fails, stall, truncate, lane}, kills...) {
		args := common(model, "--model="+model, "--num-workers=1", "--bind-addr=127.0.0.1:0", "--server-endpoints=1", "--drain-grace=0", "--drain-timeout=1s",
			"--time-to-first-token=5ms", "--inter-token-latency=5ms")
		if model != fine {
			how, _, _ := strings.Cut(model, "-")
			args = append(args, "--failure-injection-rate=1", "--failure-types="+how)
		}
		started[model] = start(t, model, pr.Worker, args...)
	}
	for model, p := range started {
		r.workers[model] = p.says(t, "ready", "admin")
	}
	front := start(t, "frontend", pr.Frontend, common("frontend", "--http-addr=127.0.0.1:0", "--first-token-timeout=2s", "--inactivity-timeout=2s", "--retry-limit=0", "--max-body-bytes=1MiB")...)
	lone := start(t, "lone frontend", pr.Frontend, common("lone", "--http-addr=127.0.0.1:0", "--namespace=empty")...)
	r.url, r.admin, r.empty = front.says(t, "serving", "http"), front.says(t, "serving", "admin"), lone.says(t, "serving", "http")
	want := fmt.Sprintf(`"reachable": %d`, len(started))
	eventually(t, "frontend that reaches all workers", func() bool { return strings.Contains(get(t, r.admin+"/debug/plane"), want) })
	return r
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

func get(t *testing.T, url string) string {
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

// metric is the sum of a process's metrics of that name whose labels have all words.
func metric(t *testing.T, admin, name string, words ...string) float64 {
	t.Helper()
	sum := 0.0
next:
	for line := range strings.Lines(get(t, admin+"/metrics")) {
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
