package analysis

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/analysis/runtest"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// write makes a run directory below dir.
func write(t *testing.T, dir string, s runtest.Spec) string {
	t.Helper()
	at := filepath.Join(dir, s.ID)
	if err := runtest.Write(at, s); err != nil {
		t.Fatal(err)
	}
	return at
}

// analyze reads runs that are expected to be readable.
func analyze(t *testing.T, opts Options, dirs ...string) *Table {
	t.Helper()
	runs, err := Load(t.Context(), dirs, opts)
	if err != nil {
		t.Fatal(err)
	}
	tab := tabulate(runs)
	tab.Window = opts.withDefaults().Window
	return tab
}

func printed(t *testing.T, print func(*bytes.Buffer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// held makes the times to first response of eight processes, n of which hold.
func held(n int) []time.Duration {
	var out []time.Duration
	for i := range 8 {
		d := 20 * ms
		if i >= 8-n {
			d = time.Duration(2000+500*i) * ms
		}
		out = append(out, d)
	}
	return out
}

func TestHoldersAreFoundFromRows(t *testing.T) {
	dir := t.TempDir()
	for _, plane := range []string{"tcp", "quic"} {
		for _, n := range []int{0, 1, 2, 4} {
			id := fmt.Sprintf("%s-%d", plane, n)
			at := write(t, dir, runtest.Spec{ID: id, Plane: plane, First: held(n)})
			r, err := Load(t.Context(), []string{at}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(r[0].Aside) > 0 || r[0].Holders != n {
				t.Errorf("%s: %d holders, set aside %v", id, r[0].Holders, r[0].Aside)
			}
			if want := map[int]int{0: 8, 1: 1, 2: 2, 4: 4}[n]; r[0].Reference != want {
				t.Errorf("%s: %d holders by the reference's rule, want %d", id, r[0].Reference, want)
			}
		}
	}
	tab := analyze(t, Options{}, dir)
	if len(tab.Lines) != 8 || len(tab.SetAside) != 0 {
		t.Fatalf("%d lines, %d set aside", len(tab.Lines), len(tab.SetAside))
	}
	for i, l := range tab.Lines { // by holders, then by plane
		if l.Holders != []int{0, 0, 1, 1, 2, 2, 4, 4}[i] || l.Config != []string{"quic", "tcp"}[i%2] ||
			len(l.Runs) != 1 {
			t.Errorf("line %d: %s with %d holders, %d runs", i, l.Config, l.Holders, len(l.Runs))
		}
	}
}

// TestHolderRuleAtItsEdges holds the rule at the values where it turns, each process's mean exact to the nanosecond.
func TestHolderRuleAtItsEdges(t *testing.T) {
	for _, c := range []struct {
		name            string
		itl             time.Duration
		first           []time.Duration // of the last processes; the others take 20 ms
		want, reference int
	}{
		{"exactly a quarter of the slowest", ms, []time.Duration{1000 * ms, 4000 * ms}, 2, 2},
		{"a nanosecond less than a quarter", ms, []time.Duration{1000*ms - 1, 4000 * ms}, 1, 1},
		{"exactly 3 times the median", ms, []time.Duration{60 * ms}, 0, 8},
		{"a nanosecond over 3 times the median", ms, []time.Duration{60*ms + 1}, 1, 8},
		{"3 times the median, but within 3 inter-token latencies of it", 200 * ms, []time.Duration{620 * ms}, 0, 1},
		{"a nanosecond over 3 inter-token latencies", 200 * ms, []time.Duration{620*ms + 1}, 1, 1},
		{"an inter-token latency of next to nothing: the median decides", time.Microsecond,
			[]time.Duration{59 * ms, 61 * ms}, 1, 8},
		{"half of the processes", ms, []time.Duration{900 * ms, 800 * ms, 700 * ms, 600 * ms}, 4, 4},
		{"five of eight: the median holds too, so nobody stands out", ms, []time.Duration{900 * ms, 800 * ms, 700 * ms,
			600 * ms, 500 * ms}, 0, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := held(0)
			copy(first[8-len(c.first):], c.first)
			at := write(t, t.TempDir(), runtest.Spec{ID: "x", First: first, ITL: c.itl,
				Row: func(i int, r *report.Row) {
					r.First = r.Sent + int64(first[i%8])
					r.Last = r.First + 15*int64(c.itl)
					r.End = r.Last + 1
				}})
			runs, err := Load(t.Context(), []string{at}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r := runs[0]; r.Holders != c.want || r.Reference != c.reference {
				t.Errorf("%d holders, %d by the reference's rule, want %d and %d", r.Holders, r.Reference, c.want,
					c.reference)
			}
		})
	}
}

func TestHoldersAreHeldAgainstWhatTheRunSays(t *testing.T) {
	dir := t.TempDir()
	lied := write(t, dir, runtest.Spec{ID: "lied", First: held(2), Run: func(r *report.Run) { *r.Holders = 1 }})
	metric := func(slow float64) func(*report.Run) {
		return func(r *report.Run) {
			for i := range r.Processes {
				p := &r.Processes[i]
				if p.MetricFirstResponse = report.Ptr(15.0); p.Holder != nil && *p.Holder {
					p.MetricFirstResponse = report.Ptr(slow)
				}
			}
		}
	}
	agree := write(t, dir, runtest.Spec{ID: "agree", First: held(2), Run: metric(3000)})
	differ := write(t, dir, runtest.Spec{ID: "differ", First: held(2), Run: metric(16)})
	runs, err := Load(t.Context(), []string{lied, agree, differ}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(runs[0].Aside, ";"); !strings.Contains(got, "run.json counts 1 holders, the rows show 2") {
		t.Errorf("a wrong count: %q", got)
	}
	if len(runs[1].Notes) > 0 || len(runs[1].Aside) > 0 {
		t.Errorf("workers that agree: %v %v", runs[1].Notes, runs[1].Aside)
	}
	if got := strings.Join(runs[2].Notes, ";"); !strings.Contains(got,
		"the rows show 2 holders, the workers' own metric 0") || len(runs[2].Aside) > 0 {
		t.Errorf("workers that differ: %q %v", got, runs[2].Aside)
	}
}

// TestHoldersOnPurpose: runs that were made with other numbers of holders are one configuration, told apart by the
// holders that the rows show; a run in which they are not those that were made says so.
func TestHoldersOnPurpose(t *testing.T) {
	dir := t.TempDir()
	made := func(id string, asked, shown int) string {
		return write(t, dir, runtest.Spec{ID: id, First: held(shown), Config: map[string]any{"holders": asked,
			"pin": id}})
	}
	runs, err := Load(t.Context(), []string{made("none", 0, 0), made("two", 2, 2), made("natural", 0, 1),
		made("missed", 2, 1)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if got, want := strings.Contains(strings.Join(r.Notes, ";"), "made with 2 holders on purpose, the rows show 1"),
			r.Name == "missed"; got != want || len(r.Aside) > 0 {
			t.Errorf("%s: notes %q, set aside %q", r.Name, r.Notes, r.Aside)
		}
	}
	if table := tabulate(runs); len(table.Lines) != 3 || len(table.SetAside) != 0 {
		t.Errorf("%d lines for 0, 1 and 2 holders, %d runs set aside", len(table.Lines), len(table.SetAside))
	}
}

func load1(t *testing.T, dir string, opts Options) *Run {
	t.Helper()
	runs, err := Load(context.Background(), []string{dir}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return runs[0]
}

// editRun changes a written run.json as text: what a broken or foreign writer would leave.
func editRun(t *testing.T, dir, old, repl string) {
	t.Helper()
	path := filepath.Join(dir, report.RunFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		t.Fatalf("%q is not in %s", old, path)
	}
	if err := os.WriteFile(path, bytes.Replace(b, []byte(old), []byte(repl), 1), 0o644); err != nil {
		t.Fatal(err)
	}
}

func appendRows(t *testing.T, dir, lines string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, report.RowsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(lines); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
