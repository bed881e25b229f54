//go:build linux

package endtoend

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/analysis"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// itlOf is the comparison's line for the median inter-token latency.
func itlOf(t *testing.T, c *analysis.Comparison) analysis.Result {
	t.Helper()
	for _, b := range c.Buckets {
		for _, r := range b.Results {
			if r.Metric.Name == "ITL p50" {
				return r
			}
		}
	}
	t.Fatalf("no ITL in %+v", c)
	return analysis.Result{}
}

// check2ms wants the 2 ms that were added to each token.
func check2ms(t *testing.T, r analysis.Result) {
	t.Helper()
	if d, _ := r.Difference(); !r.Resolved || math.Abs(d-2) > .5 {
		t.Errorf("ITL p50: A %+v, B %+v ms, a difference of %.2f, resolved: %t (%s); 2 ms were added", r.A, r.B, d,
			r.Resolved, r.Why)
	}
}

// passes are what mock engines say of their forward passes.
type passes struct{ made, late, skipped float64 } // late: seconds, of all together

func (w *world) passes(t *testing.T, workers []*worker) (p passes) {
	t.Helper()
	for _, k := range workers {
		m := w.metrics(t, k.admin)
		p.made += m["laneway_worker_pass_late_seconds_count"]
		p.late += m["laneway_worker_pass_late_seconds_sum"]
		p.skipped += m["laneway_worker_passes_skipped_total"]
	}
	return p
}

// onTime says whether the engines kept time since before: a pass that is skipped adds its whole time to what a token
// took.
func (p passes) onTime(before passes) bool {
	made := p.made - before.made
	return p.skipped-before.skipped <= made/100 && p.late-before.late <= made*.004
}

// TestTwoMillisecondsAToken: five real runs a side at once, one side's engines 2 ms slower a token. TestNumbers makes
// the same with whole clusters. Runs in which the engines of either side did not get their turn in time are made again,
// both.
func TestTwoMillisecondsAToken(t *testing.T) {
	const pairs, tries = 5, 10
	w := newWorld(t)
	type side struct {
		f       *frontend
		workers []*worker
		dirs    []string
	}
	var sides [2]side
	for i, itl := range []string{"20ms", "22ms"} {
		ns := "--namespace=itl" + itl
		s := &sides[i]
		for k := range 2 {
			s.workers = append(s.workers, w.startWorker(t, fmt.Sprintf("w%s-%d", itl, k), 2, ns,
				"--inter-token-latency="+itl).ready(t))
		}
		s.f = w.startFrontend(t, ns).serving(t)
		s.f.sees(t, 4)
	}
	for n := range tries {
		var both sync.WaitGroup
		var made [2]*generator
		var before [2]passes
		for i, s := range sides {
			before[i] = w.passes(t, s.workers)
			made[i] = s.f.startLoadgen(t, fmt.Sprintf("run-%d-%d", i, n), "--concurrency=32", "--request-count=32",
				"--warmup-request-count=0", "--osl=32")
			both.Go(func() { <-made[i].done })
		}
		both.Wait()
		onTime := true
		for i, s := range sides {
			made[i].report(t, 0)
			after := w.passes(t, s.workers)
			if !after.onTime(before[i]) {
				onTime = false
				t.Logf("pair %d, side %d: not on time: %+v before, %+v after", n, i, before[i], after)
			}
		}
		if onTime {
			for i := range sides {
				sides[i].dirs = append(sides[i].dirs, made[i].dir)
			}
		}
		switch missing := pairs - len(sides[0].dirs); {
		case missing > tries-1-n:
			t.Skipf("the machine is too busy for mock engines that keep time: in %d of %d pairs of runs they did",
				pairs-missing, n+1)
		case missing > 0:
			continue
		}
		break
	}
	opts := analysis.Options{Window: analysis.WindowRaw, Allow: analysis.Allowable()}
	c, err := analysis.Compare(t.Context(), sides[0].dirs, sides[1].dirs, opts)
	if err != nil {
		t.Fatal(err)
	}
	check2ms(t, itlOf(t, c))
}

// long is set for tests that take many minutes.
const long = "LANEWAY_LONG"

// numbers are the built programs of the long form.
type numbers struct {
	dir               string // gets the runs
	root              string // of the module
	cluster, analysis string
	bin, servers      string // what cluster starts, built once: an edit while the test runs changes no run
}

func buildNumbers(t *testing.T) *numbers {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	pr, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	servers, err := devserver.Build(t.Context(), func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	n := &numbers{dir: t.TempDir(), root: root, bin: filepath.Dir(pr.Frontend), servers: servers}
	if keep := os.Getenv("LANEWAY_KEEP_RUNS"); keep != "" {
		n.dir = keep
	}
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "./cmd/cluster", "./analysis")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n.cluster, n.analysis = filepath.Join(bin, "cluster"), filepath.Join(bin, "analysis")
	return n
}

// call runs a built program and returns its exit code and standard output.
func (n *numbers) call(t *testing.T, program string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = n.root, append(os.Environ(), devserver.BinaryEnv+"="+n.servers)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Logf("%s %q: exit code %d\n%s", filepath.Base(program), args, code, errs.String())
		return code, out.String()
	}
	return 0, out.String()
}

// cluster makes runs below dir.
func (n *numbers) make(t *testing.T, dir string, more ...string) string {
	t.Helper()
	dir = filepath.Join(n.dir, dir)
	args := append([]string{"--artifact-dir=" + dir, "--bin-dir=" + n.bin, "--response-plane=tcp", "--workers=16",
		"--processes=8", "--router=round-robin", "--concurrency=32", "--request-count=160", "--isl=16",
		"--osl=32", "--inter-token-latency=20ms", "--steady-after=500ms"}, more...)
	if code, out := n.call(t, n.cluster, args...); code != 0 {
		t.Fatalf("cluster %q: exit code %d\n%s", args, code, out)
	}
	return dir
}

const allow = "--allow=client-limited,not steady"

// TestNumbers makes whole clusters, 68 runs of about 7 s on a machine with nothing else to do, and holds the built
// analysis to what was put into them: the same binary against itself is not resolved in 5 tries of 5 runs a side, 2 ms
// a token are, and unequal holders are refused. The sides take turns, A B B A and so on: then neither a machine that
// gets slower nor one that alternates keeps them apart.
//
// Five runs a side of the same thing have ranges of one metric that do not overlap in 1 of 126 comparisons: 5 tries of
// 7 metrics would see that in up to 28% of the calls, if the metrics had nothing to do with one another and all varied
// by more than 3%; most do not. What is resolved is said, and the try made once more: chance does not take the same
// metric twice, a bias does.
func TestNumbers(t *testing.T) {
	if os.Getenv(long) == "" {
		t.Skip("takes about 10 minutes: set " + long + "=1, and a -timeout to fit")
	}
	n := buildNumbers(t)
	t.Run("holders", n.holders)
	t.Run("2ms", n.twoMilliseconds)
	for try := range 5 {
		name := fmt.Sprintf("same-%d", try+1)
		t.Run(name, func(t *testing.T) {
			first := n.same(t, name)
			if len(first) == 0 {
				return
			}
			t.Logf("between a binary and itself these are resolved, which chance does in 1 of 18 tries at most: %q",
				first)
			for _, again := range n.same(t, name+"-again") {
				if slices.Contains(first, again) {
					t.Errorf("a difference between a binary and itself is resolved twice: %s", again)
				}
			}
		})
	}
}

// turns divides ten runs, in their order, into two sides that take turns.
const turns = "ABBAABBAAB"

func (n *numbers) holders(t *testing.T) {
	dirs := map[int]string{}
	args := []string{allow, "--out="}
	for _, holders := range []int{0, 1, 2, 4} {
		dirs[holders] = n.make(t, fmt.Sprintf("holders-%d", holders), "--response-plane=tcp,quic",
			fmt.Sprintf("--holders=%d", holders), "--concurrency=64", "--osl=8", "--inter-token-latency=100ms",
			"--hold-delay=4s")
		args = append(args, dirs[holders])
	}
	code, out := n.call(t, n.analysis, args...)
	t.Log("\n" + out)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for plane := range map[string]bool{"tcp": true, "quic": true} {
		for _, text := range []string{"0 holders", "1 holder", "2 holders", "4 holders"} {
			if want := fmt.Sprintf("  %s, %s: %s-1\n", plane, text, plane); !strings.Contains(out, want) {
				t.Errorf("the analysis does not have %q", want)
			}
		}
	}
	if strings.Contains(out, "on purpose, the rows show") || strings.Contains(out, "the workers' own metric") {
		t.Error("the rows do not show what was made, or not what the workers measured")
	}
	code, out = n.call(t, n.analysis, "compare", allow, filepath.Join(dirs[1], "tcp-1"), "--",
		filepath.Join(dirs[2], "tcp-1"))
	if code != 4 {
		t.Errorf("1 holder against 2: exit code %d, expected 4\n%s", code, out)
	}
}

func (n *numbers) twoMilliseconds(t *testing.T) {
	var a, b string
	for _, side := range turns {
		if side == 'A' {
			a = n.make(t, "itl-20ms")
		} else {
			b = n.make(t, "itl-22ms", "--inter-token-latency=22ms")
		}
	}
	code, out := n.call(t, n.analysis, "compare", allow, a, "--", b)
	t.Log("\n" + out)
	if busy := machineLimited(t, a, b); busy > 0 && !strings.Contains(out, "resolved: B is worse") {
		t.Skipf("something else keeps the machine busy: in %d of %d runs, which use a small part of it, all cores "+
			"were over 90%% busy", busy, len(turns))
	}
	if code != 0 || !strings.Contains(out, "resolved: B is worse") || strings.Contains(out, "Interleave them") {
		t.Errorf("exit code %d", code)
	}
	c, err := analysis.Compare(t.Context(), []string{a}, []string{b},
		analysis.Options{Allow: []string{report.MarkClientLimited, report.MarkNotSteady}})
	if err != nil {
		t.Fatal(err)
	}
	check2ms(t, itlOf(t, c))
}

// machineLimited counts the runs below the folders that found the machine full.
func machineLimited(t *testing.T, dirs ...string) (n int) {
	t.Helper()
	for _, dir := range dirs {
		runs, err := filepath.Glob(filepath.Join(dir, "tcp-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			run, err := report.Read(r)
			if err != nil {
				t.Fatal(err)
			}
			if run.Marked(report.MarkMachineLimited) {
				n++
			}
		}
	}
	return n
}

// same compares runs of one thing, half of them with the other half, and returns the metrics that are resolved.
func (n *numbers) same(t *testing.T, name string) (resolved []string) {
	began := time.Now()
	dir := n.make(t, name, fmt.Sprintf("--runs=%d", len(turns)))
	sides := map[rune][]string{}
	for i, side := range turns {
		sides[side] = append(sides[side], filepath.Join(dir, fmt.Sprintf("tcp-%d", i+1)))
	}
	code, out := n.call(t, n.analysis, slices.Concat([]string{"compare", allow}, sides['A'], []string{"--"},
		sides['B'])...)
	t.Logf("%d runs in %v\n%s", len(turns), time.Since(began).Round(time.Second), out)
	five := strings.Count(out, "5 runs of A") == 1 && strings.Contains(out, "5 of B")
	if busy := machineLimited(t, dir); code == 0 && !five && busy > 0 {
		t.Skipf("something else keeps the machine busy, so that a worker that did not get its turn looks like a "+
			"holder: in %d of %d runs all cores were over 90%% busy", busy, len(turns))
	}
	if code != 0 || !five || strings.Contains(out, "Interleave them") {
		t.Errorf("exit code %d: not all runs were compared, or they did not take turns", code)
	}
	for line := range strings.Lines(out) {
		if metric, _, is := strings.Cut(line, " resolved: B is"); is {
			metric, _, _ = strings.Cut(strings.TrimSpace(metric), "  ")
			resolved = append(resolved, metric)
		}
	}
	return resolved
}
