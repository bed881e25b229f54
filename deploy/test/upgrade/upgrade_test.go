package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/mux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oldCommit is the first commit of the lane protocol as it is now; a fleet of it must be upgradable.
const oldCommit = "8bd4aea25ee9c4d243356708e309a23b7f6c9810"

const (
	workerProcesses, workersEach = 3, 2
	frontends                    = 2
	leave                        = 90 * time.Second // for a process to drain and go, on a loaded machine
)

func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", lab.Root()}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// buildOld builds the programs of the old commit from a worktree of its own.
func buildOld(t *testing.T, dir string) {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "old")
	if _, err := git(t, "worktree", "add", "--quiet", "--detach", tree, oldCommit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // t's own context has ended
		defer cancel()
		if out, err := exec.CommandContext(ctx, "git", "-C", lab.Root(), "worktree", "remove", "--force",
			tree).CombinedOutput(); err != nil {
			t.Errorf("git worktree remove: %v\n%s", err, out)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	for _, prog := range []string{"frontend", "mockworker"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, prog), "./cmd/"+prog)
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s of %s: %v\n%s", prog, oldCommit, err, out)
		}
	}
}

// wireVersions are the protocol versions that the old commit speaks.
func wireVersions(t *testing.T) (lowest, highest int) {
	t.Helper()
	src, err := git(t, "show", oldCommit+":mux/internal/wire/hello.go")
	if err != nil {
		t.Fatal(err)
	}
	find := func(name string) int {
		m := regexp.MustCompile(name + ` = ([0-9]+)`).FindStringSubmatch(src)
		if m == nil {
			t.Fatalf("hello.go of %s has no %s", oldCommit, name)
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return find("MinVersion"), find("MaxVersion")
}

// fleet is a cluster whose processes are replaced.
type fleet struct {
	t         *testing.T
	discovery []string
	balancer  *balancer
	workers   []*lab.Process
	fronts    []*lab.Process
	started   int
}

func (f *fleet) worker(dir string) *lab.Process {
	f.started++
	ports := lab.FreePort(f.t, 3)
	name := fmt.Sprintf("worker-%d-%s", f.started, filepath.Base(dir))
	args := append([]string{"--name=" + name, "--admin-addr=127.0.0.1:" + strconv.Itoa(ports+2),
		"--bind-addr=127.0.0.1:" + strconv.Itoa(ports), "--advertise-addr=127.0.0.1",
		"--server-endpoints=2", "--num-workers=" + strconv.Itoa(workersEach), "--inter-token-latency=20ms",
		"--time-to-first-token=20ms",
		"--drain-grace=2s", "--drain-timeout=60s"}, f.discovery...)
	return lab.Start(f.t, lab.Options{Name: name}, filepath.Join(dir, "mockworker"), args...)
}

func (f *fleet) frontend(dir string) *lab.Process {
	f.started++
	ports := lab.FreePort(f.t, 2)
	name := fmt.Sprintf("frontend-%d-%s", f.started, filepath.Base(dir))
	args := append([]string{"--name=" + name, "--http-addr=127.0.0.1:" + strconv.Itoa(ports),
		"--admin-addr=127.0.0.1:" + strconv.Itoa(ports+1), "--drain-timeout=60s"}, f.discovery...)
	return lab.Start(f.t, lab.Options{Name: name}, filepath.Join(dir, "frontend"), args...)
}

// linked waits until a frontend has links to all worker processes.
func (f *fleet) linked(p *lab.Process) {
	f.t.Helper()
	p.Ready(f.t, time.Minute)
	lab.Eventually(f.t, time.Minute, p.Name+" reaches every worker process", func() error {
		text, err := lab.Get("http://" + p.Admin + "/metrics")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(line, "laneway_links "); ok {
				if n, err := strconv.Atoi(strings.TrimSpace(v)); err != nil || n < len(f.workers) {
					return fmt.Errorf("%d of %d links: %w", n, len(f.workers), err)
				}
				return nil
			}
		}
		return fmt.Errorf("no laneway_links")
	})
}

func start(t *testing.T, dir string) *fleet {
	etcd, nats := devtest.Etcd(t), devtest.NATS(t)
	f := &fleet{t: t, balancer: newBalancer(t),
		discovery: []string{"--etcd-endpoints=" + strings.Join(etcd.Endpoints(), ","), "--nats-url=" + nats.URL(),
			"--wait-for-discovery=30s"}}
	for range workerProcesses {
		f.workers = append(f.workers, f.worker(dir))
	}
	for _, w := range f.workers {
		w.Ready(t, time.Minute)
	}
	for range frontends {
		p := f.frontend(dir)
		f.fronts = append(f.fronts, p)
		f.linked(p)
		f.balancer.add(p.HTTP)
	}
	return f
}

// replaceWorkers puts a worker process of dir in the place of each, one at a time.
func (f *fleet) replaceWorkers(dir string) {
	f.t.Helper()
	for i, old := range f.workers {
		p := f.worker(dir)
		p.Ready(f.t, time.Minute)
		f.workers[i] = p
		for _, front := range f.fronts {
			f.linked(front)
		}
		if err := old.Term(leave); err != nil {
			f.t.Errorf("%s: %v", old.Name, err)
		}
	}
}

func (f *fleet) replaceFrontends(dir string) {
	f.t.Helper()
	for i, old := range f.fronts {
		p := f.frontend(dir)
		f.linked(p)
		f.balancer.add(p.HTTP)
		f.fronts[i] = p
		f.balancer.remove(f.t, old.HTTP)
		if err := old.Term(leave); err != nil {
			f.t.Errorf("%s: %v", old.Name, err)
		}
	}
}

// load runs load generators one after the other, two at a time, until stop is called. A failed request or a wrong token
// is an error.
type load struct {
	stop     chan struct{}
	wg       sync.WaitGroup
	mu       sync.Mutex
	requests int
	errs     []error
}

func startLoad(t *testing.T, loadgen, url string) *load {
	l := &load{stop: make(chan struct{})}
	ctx := t.Context()
	dir := t.TempDir()
	for g := range 2 {
		l.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				case <-ctx.Done():
					return
				default:
				}
				run := filepath.Join(dir, fmt.Sprintf("%d-%d", g, n))
				cmd := exec.CommandContext(ctx, loadgen, "--url="+url, "--concurrency=16", "--request-count=48",
					"--warmup-request-count=0", "--isl=16", "--osl=48",
					"--audit=on", "--ui=none", "--artifact-dir="+run)
				cmd.Env = []string{}
				out, err := cmd.CombinedOutput()
				if err == nil {
					err = l.count(run)
				}
				if err != nil {
					l.mu.Lock()
					l.errs = append(l.errs, fmt.Errorf("%w\n%s\n%s", err, out, failed(run)))
					l.mu.Unlock()
				}
			}
		})
	}
	return l
}

// failed are the rows of a run's failed requests.
func failed(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "requests.jsonl"))
	if err != nil {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		var row struct {
			ErrorType string `json:"error_type"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.ErrorType != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// count adds up what a run did.
func (l *load) count(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil {
		return err
	}
	var run struct {
		Raw struct{ Requests, Errors, WrongTokens int }
	}
	if err := json.Unmarshal(b, &run); err != nil {
		return err
	}
	if run.Raw.Requests != 48 || run.Raw.Errors != 0 {
		return fmt.Errorf("%d requests, %d errors", run.Raw.Requests, run.Raw.Errors)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests += run.Raw.Requests
	return nil
}

// end stops the load and returns how many requests were right; any other fails the test.
func (l *load) end(t *testing.T) int {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	for _, err := range l.errs {
		t.Errorf("requests failed: %v", err)
	}
	return l.requests
}

// TestRollingUpgrade replaces every process of a fleet of the old commit by one of this checkout, one at a time, under
// load. Where docs/compat.md lets the two talk, no request fails. Where it does not, a frontend that meets only workers
// of the other version says so in one error.
func TestRollingUpgrade(t *testing.T) {
	if _, err := git(t, "cat-file", "-e", oldCommit+"^{commit}"); err != nil {
		lab.Missing(t, "a full clone is needed, this one lacks the old commit: %v", err)
	}
	dirs := t.TempDir()
	was, now := filepath.Join(dirs, "old"), filepath.Join(dirs, "new")
	buildOld(t, was)
	if err := lab.Build(t.Context(), lab.Root(), now); err != nil {
		t.Fatal(err)
	}
	if low, high := wireVersions(t); high < mux.WireMin || low > mux.WireMax {
		t.Run("versions that do not meet", func(t *testing.T) { strangers(t, was, now, high) })
		return
	}
	for _, order := range []struct {
		name  string
		steps []func(*fleet, string)
	}{
		{"workers first", []func(*fleet, string){(*fleet).replaceWorkers, (*fleet).replaceFrontends}},
		{"frontends first", []func(*fleet, string){(*fleet).replaceFrontends, (*fleet).replaceWorkers}},
	} {
		t.Run(order.name, func(t *testing.T) {
			f := start(t, was)
			l := startLoad(t, filepath.Join(now, "loadgen"), f.balancer.server.URL)
			for _, step := range order.steps {
				step(f, now)
			}
			if n := l.end(t); n < 96 && !t.Failed() {
				t.Errorf("only %d requests were made", n)
			} else {
				t.Logf("%d requests while %d processes were replaced, none failed", n, workerProcesses+frontends)
			}
		})
	}
}

// strangers: a frontend of this checkout with workers of a version that it does not talk to serves nothing, and its log
// names both versions.
func strangers(t *testing.T, was, now string, version int) {
	etcd, nats := devtest.Etcd(t), devtest.NATS(t)
	f := &fleet{t: t, discovery: []string{"--etcd-endpoints=" + strings.Join(etcd.Endpoints(), ","), "--nats-url=" +
		nats.URL(), "--wait-for-discovery=30s"}}
	w := f.worker(was)
	w.Ready(t, time.Minute)
	p := f.frontend(now)
	lab.Eventually(t, time.Minute, "the frontend names both versions", func() error {
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, strconv.Itoa(version)) && strings.Contains(line, strconv.Itoa(mux.WireMax)) &&
				strings.Contains(line, "version") {
				return nil
			}
		}
		return fmt.Errorf("not in its log:\n%s", p.Log())
	})
	if _, err := lab.Get("http://" + p.Admin + "/readyz"); err == nil {
		t.Error("the frontend is ready without a worker that it can talk to")
	}
}
