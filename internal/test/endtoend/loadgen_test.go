//go:build linux

package endtoend

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// generator is a load generator process and the run directory that it writes.
type generator struct {
	*process
	dir string
}

// startLoadgen starts a load generator against a frontend and does not wait for it.
func (f *frontend) startLoadgen(t *testing.T, name string, more ...string) *generator {
	t.Helper()
	pr, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	args := append([]string{"--url=" + f.http, "--model=mock", "--artifact-dir=" + dir, "--isl=8", "--ui=none",
		"--steady-after=0s"}, more...)
	return &generator{process: start(t, name, pr.Loadgen, args...), dir: dir}
}

// report waits for the end with this code and returns what was measured.
func (g *generator) report(t *testing.T, code int) (*report.Run, []report.Row) {
	t.Helper()
	if got := g.exit(t); got != code {
		t.Fatalf("%s ends with exit code %d, expected %d:\n%s", g.name, got, code, g.log.String())
	}
	run, err := report.Read(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	rows, bad, err := report.ReadRows(g.dir)
	if err != nil || len(bad) > 0 {
		t.Fatalf("rows: %v %v", bad, err)
	}
	return run, rows
}

// TestFrontendKilled: when the frontend dies under it, the load generator comes to its end, says so by its exit code,
// and every request that was made is in the report exactly once.
func TestFrontendKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 2 {
		k := w.startWorker(t, fmt.Sprintf("k%d", i), 2, "--inter-token-latency=20ms").ready(t)
		t.Cleanup(k.kill) // it would wait for the frontend that was killed
	}
	for _, client := range []string{"io_uring", "epoll", "goroutines"} {
		t.Run(client, func(t *testing.T) {
			f := w.startFrontend(t).serving(t)
			f.sees(t, 4)
			const requests, open = 120, 24
			g := f.startLoadgen(t, "loadgen", "--client="+client, "--concurrency="+strconv.Itoa(open),
				"--request-count="+strconv.Itoa(requests), "--warmup-request-count=8", "--osl=40")
			eventually(t, "some whole answers", func() bool {
				done := 0.0
				for name, v := range w.metrics(t, f.admin) {
					if strings.HasPrefix(name, "laneway_frontend_requests_total{") {
						done += v
					}
				}
				return done > 30
			})
			f.signal(syscall.SIGKILL)
			<-f.done

			run, rows := g.report(t, 2)
			if run.Raw.Requests+run.Raw.Errors != requests || run.Warmup.Requests+run.Warmup.Errors != 8 ||
				len(rows) != requests+8 {
				t.Errorf("%d complete, %d failed, %d rows; %d requests were to be made", run.Raw.Requests,
					run.Raw.Errors, len(rows), requests)
			}
			if run.Raw.Errors == 0 || run.Raw.Requests == 0 || run.Raw.ErrorsByType[report.EndTruncated] == 0 ||
				run.Raw.ErrorsByType[report.EndConnect] == 0 {
				t.Errorf("%d complete, errors %v: want answers that were cut and requests that found nobody",
					run.Raw.Requests, run.Raw.ErrorsByType)
			}
			seen := make(map[string]bool)
			for i := range rows {
				if seen[rows[i].ID] {
					t.Errorf("request %s stands twice", rows[i].ID)
				}
				seen[rows[i].ID] = true
				if rows[i].Wrong > 0 {
					t.Errorf("an answer that was cut has wrong tokens: %+v", rows[i])
				}
			}
			if err := report.Check(g.dir); err != nil {
				t.Error(err)
			}
		})
	}
}
