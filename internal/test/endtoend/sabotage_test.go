//go:build linux

package endtoend

import (
	"fmt"
	"strings"
	"testing"
)

// TestLanesCut: a worker process that closes its lanes in mid-response loses no token, on either plane.
func TestLanesCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, plane := range []string{"tcp", "quic"} {
		t.Run(plane, func(t *testing.T) {
			k := w.startWorker(t, "cut-"+plane, 2, "--response-plane="+plane, "--inter-token-latency=20ms",
				"--failure-injection-rate=0.1", "--failure-types=lane", "--drain-grace=0s").ready(t)
			f := w.startFrontend(t, "--response-plane="+plane, "--lanes=2").serving(t)
			f.sees(t, 2)
			run, _ := f.startLoadgen(t, "loadgen", "--concurrency=32", "--request-count=96", "--warmup-request-count=0",
				"--osl=40").report(t, 0)
			m := w.metrics(t, k.admin)
			if cuts := m[`laneway_worker_injected_failures_total{type="lane"}`]; cuts == 0 || run.Raw.Requests != 96 ||
				*run.Raw.WrongTokens != 0 {
				t.Errorf("%v lanes were cut; %d answers, %d wrong tokens", cuts, run.Raw.Requests, *run.Raw.WrongTokens)
			}
			taken := 0.0
			for name, n := range w.metrics(t, f.admin) {
				if strings.HasPrefix(name, "laneway_lane_takeovers_total{") {
					taken += n
				}
			}
			if taken == 0 {
				t.Error("no lane was taken over")
			}
			k.kill()
		})
	}
}

// TestKilledOnPurpose: a worker process that is to kill itself does, and the load generator reports what became of its
// requests.
func TestKilledOnPurpose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	doomed := w.startWorker(t, "doomed", 1, "--inter-token-latency=20ms", "--failure-injection-rate=1",
		"--failure-types=kill", "--seed=4").ready(t)
	w.startWorker(t, "sane", 1, "--inter-token-latency=20ms").ready(t)
	f := w.startFrontend(t, "--router=round-robin").serving(t)
	f.sees(t, 2)
	run, rows := f.startLoadgen(t, "loadgen", "--concurrency=8", "--request-count=40", "--warmup-request-count=0",
		"--osl=20", "--max-error-rate=1").report(t, 0)
	if code := doomed.exit(t); code != -1 {
		t.Errorf("the doomed process ends with exit code %d, expected a signal", code)
	}
	if run.Raw.Requests+run.Raw.Errors != 40 || run.Raw.Requests < 30 {
		t.Errorf("%d complete, %d failed", run.Raw.Requests, run.Raw.Errors)
	}
	for i := range rows {
		if r := &rows[i]; !r.OK() && r.Process != "doomed" && r.Process != "" {
			t.Errorf("a request failed at the process that lives: %+v", r)
		}
	}
}

// TestFailuresAreReported: each type of failure on purpose shows in the report as what it is.
func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.startFrontend(t, "--inactivity-timeout=1s", "--first-token-timeout=1s", "--retry-limit=0").serving(t)
	cases := []struct {
		kind, errorType string // of the row
		// of the last, the frontend counts the tokens
	}{{"refuse", "overloaded_error"}, {"fail", "server_error"}, {"stall", "timeout"}, {"truncate", "upstream_error"}}
	var workers []*worker
	for _, c := range cases { // each serves a model of its own
		workers = append(workers, w.startWorker(t, "fails-"+c.kind, 1, "--model="+c.kind, "--inter-token-latency=10ms",
			"--failure-injection-rate=1", "--failure-types="+c.kind, "--drain-grace=0s"))
	}
	for _, k := range workers {
		k.ready(t)
	}
	f.sees(t, len(workers))
	for i, c := range cases {
		t.Run(c.kind, func(t *testing.T) {
			run, rows := f.startLoadgen(t, "loadgen", "--model="+c.kind, "--concurrency=8", "--request-count=8",
				"--warmup-request-count=0", "--osl=10").report(t, 2)
			if n := w.metrics(t, workers[i].admin)[fmt.Sprintf(`laneway_worker_injected_failures_total{type=%q}`,
				c.kind)]; n < 8 {
				t.Errorf("the worker counts %v failures of 8", n)
			}
			for i := range rows {
				if r := &rows[i]; r.ErrorType != c.errorType || r.Wrong > 0 || r.OK() {
					t.Errorf("row %+v", r)
				}
			}
			if run.Raw.Errors != 8 || run.Raw.ErrorsByType[c.errorType] != 8 {
				t.Errorf("errors %v", run.Raw.ErrorsByType)
			}
		})
	}
}
