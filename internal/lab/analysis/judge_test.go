package analysis

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/analysis/runtest"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// TestSetAside holds that each thing that spoils a run's numbers keeps the run out of the table, with its reason.
func TestSetAside(t *testing.T) {
	for _, c := range []struct {
		name string
		spec runtest.Spec
		opts Options
		want string // "" = the run is used
	}{
		{"a good run", runtest.Spec{}, Options{}, ""},
		{"wrong tokens", runtest.Spec{Row: func(i int, r *report.Row) { r.Wrong = i / 399 }}, Options{},
			"1 wrong tokens"},
		{"no proof of transit, marked", runtest.Spec{Run: func(r *report.Run) { r.Mark(report.MarkNoProof) }},
			Options{}, "no proof of transit"},
		{"another plane carried it",
			runtest.Spec{Run: func(r *report.Run) { r.Plane.PlaneRecords = map[string]int64{"tcp": 6400} }}, Options{},
			"no proof of transit: the plane quic carried 0 records, the requests have 6400 tokens"},
		{"both planes carried something", runtest.Spec{Run: func(r *report.Run) { r.Plane.PlaneRecords["tcp"] = 3 }},
			Options{}, "the plane tcp carried 3 records in a run over quic"},
		{"not steady", runtest.Spec{Run: func(r *report.Run) { r.Mark(report.MarkNotSteady) }}, Options{},
			"marked not steady"},
		{"not steady, allowed", runtest.Spec{Run: func(r *report.Run) { r.Mark(report.MarkNotSteady) }},
			Options{Allow: []string{report.MarkNotSteady}}, ""},
		{"client-limited", runtest.Spec{Run: func(r *report.Run) { r.Mark(report.MarkClientLimited) }}, Options{},
			"marked client-limited"},
		{"partial", runtest.Spec{Run: func(r *report.Run) { r.Mark(report.MarkPartial) }}, Options{}, "marked partial"},
		{"machine-limited is said, not set aside",
			runtest.Spec{Run: func(r *report.Run) { r.Mark(report.MarkMachineLimited) }}, Options{}, ""},
		{"errors", runtest.Spec{Row: fail(4)}, Options{},
			"4 of 400 requests failed: error rate 0.01, at most 0 is allowed"},
		{"errors, allowed", runtest.Spec{Row: fail(4)}, Options{MaxErrorRate: .01}, ""},
		{"all began at once", runtest.Spec{Every: ms}, Options{},
			"no request completed in the steady window: what there is may be the opening burst"},
		{"all began at once, raw asked for", runtest.Spec{Every: ms}, Options{Window: WindowRaw}, ""},
		{"local time", runtest.Spec{Run: func(r *report.Run) { r.StartedAt = "2026-01-02T03:04:05" }}, Options{},
			`started_at is "2026-01-02T03:04:05", not a time with an offset`},
		{"a figure that the rows deny", runtest.Spec{Run: func(r *report.Run) { r.Steady.TTFT.P99 *= 2 }}, Options{},
			"run.json says TTFT p99 of the steady window"},
		{"a count that the rows deny", runtest.Spec{Run: func(r *report.Run) { r.Raw.Requests++ }}, Options{},
			"run.json counts 401 complete and 0 failed requests in the raw window, requests.jsonl 400 and 0"},
		{"nothing measured", runtest.Spec{Row: func(_ int, r *report.Row) { r.Phase = report.PhaseWarmup }}, Options{},
			"no request ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.ID = "x"
			at := write(t, t.TempDir(), c.spec)
			r := load1(t, at, c.opts)
			if got := strings.Join(r.Aside, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("set aside: %q, want %q", got, c.want)
			}
			tab, err := Analyze(t.Context(), []string{at}, c.opts)
			var none *NotComparableError
			if c.want != "" {
				if !errors.As(err, &none) || len(tab.Lines) != 0 {
					t.Errorf("a table of nothing: %v, %d lines", err, len(tab.Lines))
				}
				if out := printed(t, func(b *bytes.Buffer) error { return tab.Print(b) }); !strings.Contains(out,
					"Set aside: 1\n") || !strings.Contains(out, c.want) {
					t.Errorf("the reason is not printed:\n%s", out)
				}
			} else if err != nil || len(tab.Lines) != 1 {
				t.Errorf("%v, %d lines", err, len(tab.Lines))
			}
		})
	}
}

// fail makes the first n requests fail.
func fail(n int) func(int, *report.Row) {
	return func(i int, r *report.Row) {
		if i < n {
			r.Ended, r.ErrorType, r.Status, r.First, r.Last, r.OutputTokens = report.EndFailed, "overloaded_error", 503,
				report.Absent, report.Absent, report.Absent
		}
	}
}

func TestOneBadRowIsOneBadRow(t *testing.T) {
	at := write(t, t.TempDir(), runtest.Spec{ID: "x"})
	appendRows(t, at, "{\"id\":\"cut o")
	r := load1(t, at, Options{})
	if len(r.Aside) > 0 || r.Rows != 400 || r.Bad.Count != 1 || r.Window.Requests == 0 {
		t.Fatalf("%d rows, %d bad, set aside %v", r.Rows, r.Bad.Count, r.Aside)
	}
	out := printed(t, func(b *bytes.Buffer) error { return analyze(t, Options{}, at).Print(b) })
	if !strings.Contains(out, "1 bad rows of 401 left out: requests.jsonl line 401:") {
		t.Errorf("nobody says it:\n%s", out)
	}
	// A row of the run is spoilt: the counts may lack it, no more than it.
	at = write(t, t.TempDir(), runtest.Spec{ID: "x"})
	spoil := func(n int) {
		t.Helper()
		path := filepath.Join(at, report.RowsFile)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(b, []byte("\n"))
		for i := range n {
			lines[200+i] = []byte("\x00\x00\n")
		}
		if err := os.WriteFile(path, bytes.Join(lines, nil), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spoil(4)
	if r := load1(t, at, Options{}); len(r.Aside) > 0 || r.Bad.Count != 4 {
		t.Errorf("four spoilt rows of 400: %d bad, %v", r.Bad.Count, r.Aside)
	}
	spoil(5)
	if r := load1(t, at, Options{}); len(r.Aside) != 1 || !strings.Contains(r.Aside[0],
		"5 of 400 rows cannot be read") {
		t.Errorf("five spoilt rows of 400: %v", r.Aside)
	}
}

func TestRunThatWasKilled(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, runtest.Spec{ID: "good"})
	at := write(t, dir, runtest.Spec{ID: "killed"})
	if err := os.Remove(filepath.Join(at, report.RunFile)); err != nil {
		t.Fatal(err)
	}
	tab := analyze(t, Options{}, dir)
	if len(tab.Lines) != 1 || len(tab.SetAside) != 1 || !strings.Contains(tab.SetAside[0].Aside[0],
		"the load generator did not end its run") {
		t.Errorf("%d lines, set aside %v", len(tab.Lines), tab.SetAside)
	}
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	good := write(t, dir, runtest.Spec{ID: "good"})
	schema := write(t, dir, runtest.Spec{ID: "schema"})
	editRun(t, schema, report.Schema, "laneway.run/9")
	broken := write(t, dir, runtest.Spec{ID: "broken"})
	editRun(t, broken, `"marks"`, `marks`)
	noRows := write(t, dir, runtest.Spec{ID: "norows"})
	if err := os.Remove(filepath.Join(noRows, report.RowsFile)); err != nil {
		t.Fatal(err)
	}
	twin := write(t, t.TempDir(), runtest.Spec{ID: "good"})
	empty := t.TempDir()
	for _, c := range []struct {
		dirs []string
		want string
	}{
		{[]string{schema}, `has schema "laneway.run/9", this program reads "laneway.run/1"`},
		{[]string{broken}, "invalid character"},
		{[]string{noRows}, "no such file"},
		{[]string{filepath.Join(dir, "nowhere")}, "no such file"},
		{[]string{filepath.Join(good, report.RunFile)}, "it is a file: give the run directory"},
		{[]string{empty}, "it holds no run.json and no run directories"},
		{[]string{good, twin}, "it holds the same run as " + good},
		{[]string{good, good + "/"}, "it holds the same run as " + good},
	} {
		_, err := Analyze(t.Context(), c.dirs, Options{})
		var in *InputError
		if !errors.As(err, &in) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), in.Dir) {
			t.Errorf("%v: %v, want %q", c.dirs, err, c.want)
		}
	}
	if err := (Options{Window: "warm", Allow: []string{report.MarkNoProof}, MaxErrorRate: 2}).Validate(); err == nil ||
		!strings.Contains(err.Error(), `"warm"`) || !strings.Contains(err.Error(), report.MarkNoProof) ||
		!strings.Contains(err.Error(), "2 is not between") {
		t.Errorf("options: %v", err)
	}
}

// TestTableReads is the table as a user sees it: ranges, holders, and a run without a partner below it.
func TestTableReads(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for i, s := range []runtest.Spec{
		{ID: "tcp-1", Plane: "tcp", First: held(2), CPU: 9.5}, {ID: "quic-1", First: held(2), CPU: 12.25},
		{ID: "quic-2", First: held(2), CPU: 12.5},
		{ID: "quic-3", First: held(2), CPU: 14, Config: map[string]any{"lanes": 4}},
		{ID: "tcp-2", Plane: "tcp", First: held(4)},
	} {
		s.Started, s.Seed = at.Add(time.Duration(i)*time.Minute), uint64(i)
		write(t, dir, s)
	}
	tab := analyze(t, Options{}, dir)
	out := printed(t, func(b *bytes.Buffer) error { return tab.Print(b) })
	for _, want := range []string{
		"configuration  holders  by the reference  runs  requests/s  TTFT p50 (ms)  TTFT p99 (ms)  ITL p99 (ms)  " +
			"frontend CPU (ms/request)  drops  errors",
		"quic, lanes 1        2                 2     2", "12.2-12.5      7       0",
		"quic, lanes 4        2                 2     1", "9.50      -       0",
		"Ranges over the runs, no averages.", "  quic, lanes 1, 2 holders: quic-1, quic-2\n",
		"  lanes: 1 (quic, lanes 1); 4 (quic, lanes 4); 1 (tcp)\n",
		"Set aside: 1\n", "tcp-2 (4 holders): no partner: no run of another configuration has 4 holders\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "RAW") {
		t.Error("the steady table says that it is raw")
	}
	raw := printed(t, func(b *bytes.Buffer) error { return analyze(t, Options{Window: WindowRaw}, dir).Print(b) })
	if !strings.Contains(raw, "RAW: these figures hold the opening burst") {
		t.Errorf("raw figures do not say so:\n%s", raw)
	}
	write(t, dir, runtest.Spec{ID: "quic-4", First: held(2), Started: at.Add(time.Hour), Run: func(r *report.Run) {
		r.Mark(report.MarkBundled)
		r.Steady.ICL = &report.Dist{P50: 33, P99: 44}
	}})
	tab = analyze(t, Options{}, dir)
	if s := printed(t, func(b *bytes.Buffer) error { return tab.Print(b) }); !strings.Contains(s,
		"ITL p99 (ms)  chunk gap p50 (ms)  chunk gap p99 (ms)  frontend CPU") ||
		!strings.Contains(s, "marked bundled: usage counts over 10% more tokens") {
		t.Errorf("no chunk gaps beside ITL:\n%s", s)
	}
	if err := os.RemoveAll(filepath.Join(dir, "quic-4")); err != nil {
		t.Fatal(err)
	}
	tab = analyze(t, Options{}, dir)
	plots := filepath.Join(t.TempDir(), "new", "plots")
	files, err := tab.WritePlots(plots)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	if got := strings.Join(names, " "); got != "itl-by-load.svg requests-by-holders.svg ttft-2-holders.svg" {
		t.Errorf("plots %s", got)
	}
	ecdf, err := os.ReadFile(filepath.Join(plots, "ttft-2-holders.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"tcp-1", "quic-1", "quic-2", "quic-3"} {
		if n := strings.Count(string(ecdf), "<title>"+run+"</title></path>"); n != 1 {
			t.Errorf("%s has %d lines in the plot", run, n)
		}
	}
}
