package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/analysis/runtest"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// givenRun names a run directory of your own, as an absolute path, for TestGivenRun.
const givenRun = "LANEWAY_RUN_DIR"

// TestGivenRun holds a run that was really made to what TestThreeLargeRuns holds made-up ones to: its directory is
// complete, the page is small, its figures are those that a second computation gets from the rows, and the analysis
// reads it.
func TestGivenRun(t *testing.T) {
	dir := os.Getenv(givenRun)
	if dir == "" {
		t.Skip("set " + givenRun + " to the absolute path of a run directory")
	}
	if !filepath.IsAbs(dir) {
		t.Fatalf("%s=%s is not an absolute path", givenRun, dir)
	}
	if err := report.Check(dir); err != nil {
		t.Error(err)
	}
	page, err := os.Stat(filepath.Join(dir, report.HTMLFile))
	if err != nil {
		t.Fatal(err)
	}
	if page.Size() > 5<<20 {
		t.Errorf("report.html has %d bytes, at most 5 MiB are wanted", page.Size())
	}
	bad, compared, err := runtest.Disagreements(dir)
	if err != nil || len(bad) > 0 || compared < 40 {
		t.Errorf("recomputed: %v, %v, %d compared", err, bad, compared)
	}
	began := time.Now()
	code, stdout, stderr, state := call(t, t.TempDir(), dir, "--out=", "--allow=client-limited,not steady",
		"--window=raw")
	took := time.Since(began)
	if code != 0 || !strings.Contains(stdout, filepath.Base(dir)) {
		t.Errorf("analysis: exit code %d\n%s%s", code, stdout, stderr)
	}
	mib := int64(-1)
	if kib, ok := peakMemory(state); ok {
		if mib = int64(kib) >> 10; mib > 1<<10 {
			t.Errorf("the analysis took %d MiB, at most 1 GiB is wanted", mib)
		}
	}
	t.Logf("report.html: %d bytes; %d figures recomputed; analysed in %v with %d MiB\n%s", page.Size(), compared,
		took.Round(time.Millisecond), mib, stdout)
}
