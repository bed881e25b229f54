//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// attempts are the worker processes that a request was given to, in order, as the frontend tells it.
func (f *frontend) attempts(t *testing.T, request string) (processes []string) {
	t.Helper()
	_, b := f.w.get(t, f.admin+"/debug/plane/streams/"+request)
	var v struct{ Attempts []struct{ Process string } }
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	for _, a := range v.Attempts {
		processes = append(processes, a.Process)
	}
	return processes
}

// TestRetryLeavesTheProcess: a worker process of many engines stops for 5 s. A request that it does not acknowledge
// goes to the other process, not to the next engine of the one that is stopped.
func TestRetryLeavesTheProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Its record stays: what the registry does about a dead process is another test's.
	stopped := w.startWorker(t, "stopped", 12, "--lease-ttl=1m")
	steady := w.startWorker(t, "steady", 2, "--lease-ttl=1m").ready(t)
	stopped.ready(t)
	f := w.startFrontend(t, "--router=round-robin").serving(t)
	f.sees(t, 14)

	stopped.signal(syscall.SIGSTOP)
	l := f.startLoad(t, 40/scale, 1)
	time.Sleep(5 * time.Second)
	stopped.signal(syscall.SIGCONT)
	all := l.end()
	allWhole(t, "requests", all)
	moved := 0
	for _, o := range all {
		if o.retries == "" {
			continue
		}
		at := f.attempts(t, o.id)
		if len(at) < 2 {
			t.Fatalf("%s retries, attempts at %q: %v", o.retries, at, o)
		}
		if at[0] == at[1] {
			t.Errorf("the second attempt was at the process that had failed the first: %q: %v", at, o)
		}
		if at[0] == "stopped" {
			moved++
		}
	}
	t.Logf("%d requests went from the stopped process to the other one; retries %v", moved, f.retries(t))
	if moved == 0 {
		t.Error("no request met the stopped process")
	}
	f.quiet(t)
	steady.quiet(t)
	stopped.quiet(t)
}

// TestFrontendStopped: a frontend stops until every worker has given its link up, and goes on. The requests that have
// come meanwhile, and those that come in the next moments, find no link that holds and many that are about to come:
// they wait.
func TestFrontendStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	liveness := []string{"--keep-alive-interval=1s", "--idle-timeout=3s"}
	var workers []*worker
	for i := range 6 {
		workers = append(workers, w.startWorker(t, fmt.Sprintf("wp-%d", i), 2, liveness...))
	}
	for _, k := range workers {
		k.ready(t)
	}
	f := w.startFrontend(t, liveness...).serving(t)
	f.sees(t, 12)
	f.signal(syscall.SIGSTOP)
	began := time.Now()
	for _, k := range workers {
		eventually(t, k.name+" without a link", func() bool { return w.metrics(t, k.admin)["laneway_links"] == 0 })
	}
	t.Logf("the last link was given up after %v", time.Since(began))

	var l load
	var wg sync.WaitGroup
	ask := func() { wg.Go(func() { l.add(f.ask(t.Context(), 2, nil)) }) }
	for range 40 / scale { // they wait in the kernel
		ask()
	}
	time.Sleep(100 * time.Millisecond)
	f.signal(syscall.SIGCONT)
	for range 200 / scale {
		ask()
		time.Sleep(5 * time.Millisecond)
	}
	wg.Wait()
	allWhole(t, "requests of the first second", l.all)
	retries := f.retries(t)
	t.Logf("retries: %v", retries)
	for _, k := range f.view(t).List {
		// On a machine that is too busy to answer within the two seconds of an acknowledgement a worker has earned it.
		if k.Avoided && retries["no_ack"] == 0 {
			t.Errorf("worker %s is avoided because the frontend was stopped", k.ID)
		}
	}
	f.sees(t, 12)
	f.quiet(t)
	for _, k := range workers {
		k.quiet(t)
	}
}
