package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/analysis/runtest"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// asProgram makes the test binary run as the command itself, so that exit codes and memory are a real process's.
const asProgram = "LANEWAY_TEST_AS_ANALYSIS"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		_ = os.Unsetenv(asProgram)
		os.Exit(run(os.Args[1:], newApp()))
	}
	goleak.VerifyTestMain(m)
}

// call runs the command in a folder.
func call(t *testing.T, dir string, args ...string) (code int, stdout, stderr string, state *os.ProcessState) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String(), cmd.ProcessState
}

// sides writes runs of several configurations, 5 each, that took turns.
func sides(t *testing.T, specs map[string]runtest.Spec) string {
	t.Helper()
	dir := t.TempDir()
	began := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for name, s := range specs {
		for i := range 5 {
			s.ID, s.Seed = fmt.Sprintf("%s-%d", name, i+1), uint64(i)+100*uint64(len(name))
			s.Started = began.Add(time.Duration(i)*time.Minute + time.Duration(len(name))*time.Second)
			if err := runtest.Write(filepath.Join(dir, name, s.ID), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func holds(n int) []time.Duration {
	first := make([]time.Duration, 8)
	for i := range first {
		first[i] = 20 * time.Millisecond
		if i < n {
			first[i] = 3 * time.Second
		}
	}
	return first
}

func TestExitCodes(t *testing.T) {
	dir := sides(t, map[string]runtest.Spec{
		"quic":   {First: holds(2)},
		"slower": {First: holds(2), ITL: 22 * time.Millisecond},
		"one":    {First: holds(1)},
		"wrong":  {First: holds(2), Row: func(_ int, r *report.Row) { r.Wrong = 1 }},
	})
	if err := os.WriteFile(filepath.Join(dir, "one", "one-5", report.RunFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	one := []string{"one/one-1", "one/one-2", "one/one-3", "one/one-4"}
	for _, c := range []struct {
		name string
		args []string
		code int
		want string // in stdout when the code is 0, else in stderr
	}{
		{"table", []string{"quic", "slower"}, 0, "3 plots written to analysis-out"},
		{"resolved", []string{"compare", "quic", "--", "slower"}, 0, "resolved: B is worse"},
		{"flags after the sides", []string{"compare", "quic", "--", "slower", "--window", "raw"}, 0, "RAW"},
		{"the same thing", []string{"compare", "quic/quic-1", "quic/quic-2", "--", "quic/quic-3"}, 0,
			"cannot resolve any difference"},
		{"unequal holders", append(append([]string{"compare"}, one...), "--", "quic"), 4,
			"no number of holders occurs on both sides"},
		{"all set aside", []string{"compare", "quic", "--", "wrong"}, 4, "all 5 runs of side B were set aside"},
		{"a table of nothing", []string{"wrong"}, 4, "all 5 runs were set aside"},
		{"broken run.json", []string{"one"}, 1, "one-5"},
		{"no such folder", []string{"nowhere"}, 1, "nowhere"},
		{"a run twice", []string{"quic", "quic/quic-1"}, 1, "give each run once"},
		{"no run", nil, 1, "no run directory given"},
		{"no divider", []string{"compare", "quic", "slower"}, 1, "the sides are divided by --"},
		{"one side", []string{"compare", "quic", "--"}, 1, "a side has no run"},
		{"unknown mark", []string{"quic", "--allow", "no proof of transit"}, 1, "--allow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr, _ := call(t, dir, c.args...)
			where := stderr
			if c.code == 0 {
				where = stdout
			}
			if code != c.code || !strings.Contains(where, c.want) {
				t.Errorf("exit code %d, want %d and %q\n%s\n%s", code, c.code, c.want, stdout, stderr)
			}
			if code == 1 && stdout != "" {
				t.Errorf("bad input printed a result: %s", stdout)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "analysis-out", "ttft-2-holders.svg")); err != nil {
		t.Error(err)
	}
}

// largeRun is how many requests TestThreeLargeRuns has in each run.
var largeRun = 250_000

// TestThreeLargeRuns reads three runs of 250,000 requests: the memory is bounded, the report is small, and its numbers
// are those of the rows.
func TestThreeLargeRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 75 MB")
	}
	dir := t.TempDir()
	first := filepath.Join(dir, "quic-1")
	began := time.Now()
	err := runtest.Write(first, runtest.Spec{ID: "quic-1", Requests: largeRun, Every: 400 * time.Microsecond,
		Tokens: 256, First: holds(2), Run: func(r *report.Run) {
			// As many sockets and lanes as a large cluster has.
			for i := range 2048 {
				r.Plane.Lanes = append(r.Plane.Lanes, report.Lane{Process: fmt.Sprint("worker-", i/4), Lane: i % 4,
					Streams: report.Ptr(int64(i)), Bytes: report.Ptr(int64(i))})
				r.UDP.Sockets = append(r.UDP.Sockets, report.UDPSocket{Port: 20000 + i,
					Drops: report.Ptr(int64(i % 7))})
				r.Environment.Sockets = append(r.Environment.Sockets, report.Socket{Process: "frontend", Role: "lane",
					Port: 20000 + i})
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("written with its report in %v", time.Since(began).Round(time.Millisecond))
	page, err := os.Stat(filepath.Join(first, report.HTMLFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("report.html: %d bytes", page.Size())
	if page.Size() > 5<<20 || page.Size() < 50_000 {
		t.Errorf("report.html has %d bytes, at most 5 MiB are wanted", page.Size())
	}
	if bad, compared, err := runtest.Disagreements(first); err != nil || len(bad) > 0 || compared < 90 {
		t.Errorf("recomputed: %v, %v, %d compared", err, bad, compared)
	}

	text, err := os.ReadFile(filepath.Join(first, report.RunFile))
	if err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= 3; n++ { // the same rows under other names
		other := filepath.Join(dir, fmt.Sprint("quic-", n))
		if err := os.Mkdir(other, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(first, report.RowsFile), filepath.Join(other, report.RowsFile)); err != nil {
			t.Fatal(err)
		}
		id := bytes.Replace(text, []byte(`"id": "quic-1"`), fmt.Appendf(nil, `"id": "quic-%d"`, n), 1)
		if err := os.WriteFile(filepath.Join(other, report.RunFile), id, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	began = time.Now()
	code, stdout, stderr, state := call(t, dir, ".", "--out", "plots")
	t.Logf("analysed in %v, %v of it processor time", time.Since(began).Round(time.Millisecond), state.UserTime()+
		state.SystemTime())
	if code != 0 || !strings.Contains(stdout, "2 holders: quic-1, quic-2, quic-3") {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if kib, ok := peakMemory(state); ok {
		t.Logf("peak memory %d MiB", kib>>10)
		if kib > 1<<20 {
			t.Errorf("the analysis took %d MiB, at most 1 GiB is wanted", kib>>10)
		}
	}
}
