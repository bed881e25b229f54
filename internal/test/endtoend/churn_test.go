//go:build linux

package endtoend

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// churnFor is how long workers come and go; LANEWAY_CHURN_FOR=60s makes it longer.
func churnFor(t *testing.T) time.Duration {
	s := os.Getenv("LANEWAY_CHURN_FOR")
	if s == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("LANEWAY_CHURN_FOR=%s: %v", s, err)
	}
	return d
}

// TestChurn: of 64 workers, 10 in processes of their own are killed, told to end, and started again at random, under
// load.
func TestChurn(t *testing.T) {
	t.Parallel()
	const deadline = 20 * time.Second
	const prefill = "--time-to-first-token=300ms" // so that kills meet requests without a token
	w := newWorld(t)
	var stable []*worker
	for i := range 3 {
		stable = append(stable, w.startWorker(t, fmt.Sprintf("stable-%d", i), 18, prefill))
	}
	starting := func(i int) *worker {
		return w.startWorker(t, fmt.Sprintf("churn-%d", i), 1, prefill, "--drain-grace=200ms", "--drain-timeout=500ms")
	}
	churning := make([]*worker, 10)
	for i := range churning {
		churning[i] = starting(i)
	}
	for _, k := range stable {
		k.ready(t)
	}
	for _, k := range churning {
		k.ready(t)
	}
	f := w.startFrontend(t, "--first-token-timeout=3s", "--request-timeout="+deadline.String()).serving(t)
	f.sees(t, 64)

	l := f.startLoad(t, 60/scale, 16)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kills, leaves := 0, 0
	for end := time.Now().Add(churnFor(t)); time.Now().Before(end); time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) {
		i := random.IntN(len(churning))
		select {
		case <-churning[i].done:
			churning[i] = starting(i)
		default:
			if random.IntN(2) == 0 {
				churning[i].kill()
				kills++
			} else {
				churning[i].signal(syscall.SIGTERM)
				leaves++
			}
		}
	}
	all := l.end()
	whole, retried, cut := 0, 0, map[string]int{}
	var oldest time.Duration
	for _, o := range all {
		oldest = max(oldest, o.took)
		if o.retries != "" {
			retried++
		}
		switch {
		case o.whole:
			whole++
		case !o.typed() || o.tokens == 0:
			t.Errorf("a request that had no token was not made again unnoticed, or failed without a type: %v", o)
		default:
			cut[o.code]++
		}
	}
	t.Logf("%d kills, %d orderly ends; of %d requests %d are complete, %d after retries, cut after their first "+
		"token: %v; the oldest took %v",
		kills, leaves, len(all), whole, retried, cut, oldest)
	t.Logf("retries: %v", f.retries(t))
	if oldest > deadline+5*time.Second {
		t.Errorf("a request took %v, its deadline was %v", oldest, deadline)
	}
	if kills == 0 || leaves == 0 || whole == 0 {
		t.Error("nothing happened")
	}
	f.quiet(t)
	for _, k := range stable {
		k.quiet(t)
	}
	for i, k := range churning {
		select {
		case <-k.done:
		default:
			if len(k.lines("msg=\"stopping")) == 0 {
				k.ready(t).quiet(t)
				continue
			}
			k.exit(t)
		}
		churning[i] = starting(i)
	}
	t.Logf("64 workers again %v after the last came", f.sees(t, 64))
}

// retries are the frontend's metric, without the reasons that did not occur.
func (f *frontend) retries(t *testing.T) map[string]float64 {
	t.Helper()
	out := make(map[string]float64)
	for name, v := range f.w.metrics(t, f.admin) {
		var reason string
		if n, _ := fmt.Sscanf(name, "laneway_frontend_retries_total{reason=%q}", &reason); n == 1 && v > 0 {
			out[reason] = v
		}
	}
	return out
}

// TestWorkerKilled: of a process that is killed under load, only the answers that had begun there fail.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var workers []*worker
	for i := range 4 {
		workers = append(workers, w.startWorker(t, fmt.Sprintf("wp-%d", i), 4, "--inter-token-latency=20ms",
			"--time-to-first-token=300ms"))
	}
	for _, k := range workers {
		k.ready(t)
	}
	f := w.startFrontend(t).serving(t)
	f.sees(t, 16)
	l := f.startLoad(t, 100/scale, 20)
	time.Sleep(1500 * time.Millisecond)
	open := 0
	for _, k := range f.view(t).List {
		if k.Name == workers[1].name {
			open += k.Open
		}
	}
	workers[1].kill()
	killed := time.Now()
	time.Sleep(1500 * time.Millisecond)
	all := l.end()
	failed, retried := 0, 0
	var longest time.Duration
	for _, o := range all {
		if o.retries != "" {
			retried++
			longest = max(longest, o.took)
		}
		if o.whole {
			continue
		}
		failed++
		if o.tokens == 0 || o.code != "lost" || o.process != workers[1].name || o.began.After(killed) {
			t.Errorf("killed at %s: %v", killed.Format("05.000"), o)
		}
	}
	t.Logf("of %d requests %d failed, all with tokens from the killed process, where %d were open just before; %d "+
		"were made again elsewhere, the longest of these took %v; retries %v",
		len(all), failed, open, retried, longest, f.retries(t))
	if failed == 0 || retried == 0 {
		t.Errorf("%d failed, %d were made again: the load was too small to show anything", failed, retried)
	}
	f.quiet(t)
	for i, k := range workers {
		if i != 1 {
			k.quiet(t)
		}
	}
}

// TestWorkerFrozen: a process that stops where it is (as in a long page fault, or a debugger) keeps its connections and
// says nothing. Requests without a token go elsewhere, the others end as lost; when it goes on it is a worker again,
// without a restart.
func TestWorkerFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	frozen := w.startWorker(t, "frozen", 2, "--time-to-first-token=200ms")
	fine := w.startWorker(t, "fine", 2, "--time-to-first-token=200ms").ready(t)
	frozen.ready(t)
	f := w.startFrontend(t).serving(t)
	f.sees(t, 4)
	l := f.startLoad(t, 40/scale, 10)
	time.Sleep(time.Second)
	frozen.signal(syscall.SIGSTOP)
	began := time.Now()
	took := eventually(t, "frontend that knows the frozen process as lost", func() bool {
		for _, k := range f.view(t).List {
			if k.Name == "frozen" && k.Reachable {
				return false
			}
		}
		return true
	})
	t.Logf("not routed to any more %v after it froze", took)
	time.Sleep(max(0, 3*leaseTTL-time.Since(began))) // long enough for its lease to run out
	frozen.signal(syscall.SIGCONT)
	t.Logf("a worker again %v after it went on", f.sees(t, 4))
	all := l.end()
	failed, retried := 0, 0
	var longest time.Duration
	for _, o := range all {
		if o.retries != "" {
			retried++
			longest = max(longest, o.took)
		}
		if o.whole {
			continue
		}
		failed++
		if o.tokens == 0 || o.code != "lost" || o.process != "frozen" {
			t.Errorf("frozen at %s: %v", began.Format("05.000"), o)
		}
	}
	t.Logf("of %d requests %d failed, all with tokens from the frozen process; %d were made again elsewhere, the "+
		"longest of these took %v; retries %v",
		len(all), failed, retried, longest, f.retries(t))
	eventually(t, "answer of the process that froze", func() bool {
		o := f.ask(t.Context(), 1, nil)
		if !o.whole {
			t.Error(o)
		}
		return o.process == "frozen" || !o.whole
	})
	f.quiet(t)
	fine.quiet(t)
	frozen.quiet(t)
}
