//go:build linux

package endtoend

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// TestHolders: a run in which 0, 1, 2 or 4 of 8 worker processes hold a share of their requests back is classified as
// such, by the names of the processes, on both planes, and the workers' own metric says the same.
func TestHolders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fronts := map[string]*frontend{}
	for _, plane := range []string{"tcp", "quic"} {
		fronts[plane] = w.startFrontend(t, "--response-plane="+plane, "--router=round-robin").serving(t)
	}
	const processes, engines = 8, 2
	for _, holders := range []int{0, 1, 2, 4} {
		t.Run(fmt.Sprint(holders), func(t *testing.T) {
			var workers []*worker
			var want []string
			for i := range processes {
				args := []string{"--response-plane=tcp,quic", "--inter-token-latency=20ms", "--drain-grace=0s"}
				name := fmt.Sprintf("h%d-%d", holders, i)
				if i < holders {
					args = append(args, "--hold-share=0.5", "--hold-delay=1500ms")
					want = append(want, name)
				}
				workers = append(workers, w.startWorker(t, name, engines, args...))
			}
			for _, k := range workers {
				k.ready(t)
			}
			var generators sync.WaitGroup
			for plane, f := range fronts {
				f.sees(t, processes*engines)
				g := f.startLoadgen(t, "loadgen-"+plane, "--concurrency=64", "--request-count=192",
					"--warmup-request-count=0", "--osl=8")
				generators.Go(func() { <-g.done })
				t.Cleanup(func() { // after both have ended
					run, rows := g.report(t, 0)
					checkHolders(t, plane, run, rows, want)
				})
			}
			generators.Wait()
			for i, k := range workers {
				m := w.metrics(t, k.admin)
				mean := m["laneway_worker_time_to_first_response_seconds_sum"] / m["laneway_worker_time_to_first_response_seconds_count"]
				if held := m["laneway_worker_held_total"]; (held > 0) != (i < holders) ||
					(mean > 0.4) != (i < holders) {
					t.Errorf("%s has held %v requests, its mean time to first response is %.3f s", k.name, held, mean)
				}
			}
			for _, k := range workers {
				k.signal(syscall.SIGTERM)
			}
			for _, k := range workers {
				k.exit(t)
			}
		})
	}
}

// checkHolders compares with run.json and with what the rows alone say.
func checkHolders(t *testing.T, plane string, run *report.Run, rows []report.Row, want []string) {
	var told, found []string
	for _, p := range run.Processes {
		if p.Holder != nil && *p.Holder {
			told = append(told, p.Name)
		}
	}
	for _, l := range report.FindHolders(rows) {
		if l.Holder {
			found = append(found, l.Name)
		}
		t.Logf("%s %s: %d requests, mean first response %.0f ms, holder %t", plane, l.Name, l.Requests,
			l.MeanFirstResponse/1e6, l.Holder)
	}
	slices.Sort(told)
	if run.Holders == nil || *run.Holders != len(want) || !slices.Equal(told, want) || !slices.Equal(found, want) {
		t.Errorf("%s: holders are %v, the rows say %v; %v held requests back", plane, told, found, want)
	}
	for i := range rows {
		if rows[i].Lane != plane+"/0" {
			t.Fatalf("a request of the %s run went over %q", plane, rows[i].Lane)
		}
	}
}
