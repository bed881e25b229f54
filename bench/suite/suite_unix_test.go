//go:build unix

package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func script(name, text string) Part {
	return Part{Name: name, What: "a script", Program: self, Args: []string{"-c", text}}
}

// index is what stands in the folder.
func index(t *testing.T, dir string) (ix Index, page string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, IndexFile))
	if err != nil || json.Unmarshal(b, &ix) != nil {
		t.Fatalf("%v: %s", err, b)
	}
	p, err := os.ReadFile(filepath.Join(dir, PageFile))
	if err != nil {
		t.Fatal(err)
	}
	return ix, string(p)
}

// TestAFailingPartStopsNoOther: all others run, and the error says whether a part was wrong or could not be started.
func TestAFailingPartStopsNoOther(t *testing.T) {
	for _, c := range []struct {
		code string
		bad  bool
	}{{"1", false}, {"2", true}} {
		dir := t.TempDir()
		ix, at, err := Run(t.Context(), Config{Self: "/bin/sh", Out: dir, Say: func(string) {}, parts: []Part{
			script("good", "echo one"), script("fails", "echo two; echo why >&2; exit "+c.code),
			script("after", "echo three"),
		}})
		failed, ok := errors.AsType[*PartsError](err)
		if !ok || failed.Bad != c.bad || len(failed.Failed) != 1 || failed.Failed[0] != "fails" || ix == nil ||
			at != dir {
			t.Errorf("exit code %s: %v", c.code, err)
		}
		got, page := index(t, dir)
		if len(got.Parts) != 3 || got.Parts[1].ExitCode != int(c.code[0]-'0') || got.Parts[2].ExitCode != 0 ||
			got.Partial != "" {
			t.Errorf("%+v", got.Parts)
		}
		for _, want := range []string{"one\n", "**Failed**, exit code " + c.code, "why\n", "three\n"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q:\n%s", want, page)
			}
		}
	}
}

// TestFailedPartShowsItsTables: what was measured before a part failed is on the page.
func TestFailedPartShowsItsTables(t *testing.T) {
	dir := t.TempDir()
	p := Part{Name: "go", What: "a script", Program: self, Args: []string{"-c", "echo BenchmarkA-2 1 5 ns/op; exit 1"},
		Dir: ".", Passes: 3}
	r := (&tools{root: t.TempDir(), self: "/bin/sh"}).run(t.Context(), p, dir)
	if r.ExitCode != 1 || r.Error == "" {
		t.Errorf("%+v", r)
	}
	page := (&Index{Parts: []Result{r}}).page(dir)
	if !strings.Contains(page, "**Failed**, exit code 1") || !strings.Contains(page, "| A | 5 |") {
		t.Errorf("page:\n%s", page)
	}
}

// TestInterrupted: the part that runs is ended, and what there is is written and says that it is partial.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	dir := t.TempDir()
	say := func(s string) {
		if strings.HasPrefix(s, "2 of 3") {
			cancel(why)
		}
	}
	_, _, err := Run(ctx, Config{Self: "/bin/sh", Out: dir, Say: say, parts: []Part{script("first", "echo one"),
		script("long", "sleep 600"), script("never", "echo three")}})
	if !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	ix, page := index(t, dir)
	if len(ix.Parts) != 2 || ix.Parts[0].ExitCode != 0 || ix.Parts[1].ExitCode != -1 || !strings.Contains(ix.Partial,
		"2 of 3 parts were begun: enough") || ix.Ended == "" {
		t.Errorf("%+v", ix)
	}
	if !strings.Contains(page, "**Partial**") || !strings.Contains(page, "one\n") {
		t.Errorf("page:\n%s", page)
	}
}

func TestPassesAndArtifacts(t *testing.T) {
	dir := t.TempDir()
	p := script("thrice", `echo "$0"`)
	p.Passes, p.Artifacts = 3, true
	p.Args = []string{"-c", `echo "$0 $1"`, "x", "y"}
	if got := p.args("at"); strings.Join(got, " ") != `--artifact-dir=at/run -c echo "$0 $1" x y` {
		t.Errorf("%q", got)
	}
	if got := (Part{Artifacts: true, Args: []string{"http", "--pairs=3"}}).args("at"); strings.Join(got,
		" ") != "http --artifact-dir=at/run --pairs=3" {
		t.Errorf("%q", got)
	}
	p.Artifacts = false
	if _, _, err := Run(t.Context(), Config{Self: "/bin/sh", Out: dir, Say: func(string) {},
		parts: []Part{p}}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "thrice", "stdout.txt")); err != nil || string(b) != "x y\nx y\nx y\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSummary: the passes of a benchmark become one row for each of its lines, with what its name says in columns, and
// the ratio to the first row pass by pass.
func TestSummary(t *testing.T) {
	text := "goos: linux\nBenchmarkA/x=1-2   \t 100\t 10.0 ns/op\t 3 B/op\nBenchmarkA/x=2-2 7 20 ns/op\nBenchmarkB-2 " +
		"7 1 ns/op\nPASS\nBenchmarkA/x=1-2 100 30 ns/op 4 B/op\nBenchmarkA/x=2-2 7 90 ns/op\n" +
		"BenchmarkA/x=1-2 100 20 ns/op 5 B/op\n"
	var b strings.Builder
	if err := benchtable.Markdown(&b, summary(text, "ns/op")...); err != nil {
		t.Fatal(err)
	}
	want := "| benchmark | x | ns/op | to the first | B/op |\n|---|---|---|---|---|\n| A | 1 | 20 [10-30] | 1.00 " +
		"[1.00-1.00] | 4 [3-5] |\n| A | 2 | 55 [20-90] | 2.50 [2.00-3.00] | - |\n" +
		"\n| benchmark | ns/op | to the first |\n|---|---|---|\n| B | 1 | 1.00 |\n"
	if b.String() != want {
		t.Errorf("%s\nexpected\n%s", &b, want)
	}
	planes := summary("BenchmarkP/plane=a/n=1-2 1 10 ns/op\nBenchmarkP/plane=a/n=2-2 1 20 "+
		"ns/op\nBenchmarkP/plane=b/n=2-2 1 30 ns/op\nBenchmarkP/plane=b/n=3-2 1 40 ns/op\n", "ns/op")
	if len(planes) != 1 || planes[0].Head[4] != "to a" || planes[0].Rows[2][4] != "1.50" ||
		planes[0].Rows[3][4] != "-" {
		t.Errorf("%v", planes)
	}
	if got := summary("PASS\nok\n", "ns/op"); len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
}

// TestShell: what the page says is what a user can type.
func TestShell(t *testing.T) {
	want := map[string]string{
		"transport": "go run ./cmd/loadgen transport",
		"udp":       "cd bench && go run . udp",
		"mux-wire": "for i in $(seq 3); do go test -run '^$' -bench 'OnTheWire' -benchtime '200x' -timeout '20m' " +
			"./mux; done",
	}
	for _, p := range Parts() {
		if text, ok := want[p.Name]; ok && p.Shell() != text {
			t.Errorf("%s: %q, expected %q", p.Name, p.Shell(), text)
		}
	}
}

// TestClusterTable: arms in the order in which they ran, a row for each number of holders, and ratios between runs of
// the same number.
func TestClusterTable(t *testing.T) {
	dir := t.TempDir()
	for i, r := range []struct {
		name    string
		holders int
		rate    float64
		marks   []string
	}{{"tcp-1", 0, 100, nil}, {"mux-tcp-1", 0, 50, []string{"shared cores"}}, {"mux-tcp-2", 1, 80, nil},
		{"tcp-2", 0, 200, nil}} {
		run := report.Run{Schema: report.Schema, StartedAt: fmt.Sprintf("2026-01-01T00:00:0%dZ", i), Marks: r.marks,
			Holders: &r.holders, Raw: &report.Window{},
			Steady: &report.Window{RequestsPerS: &r.rate, FrontendCPU: &r.rate, TTFT: &report.Dist{P50: 1.5, P99: 2}}}
		b, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Mkdir(filepath.Join(dir, r.name), 0o755),
			os.WriteFile(filepath.Join(dir, r.name, report.RunFile), b, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "analysis"), 0o755); err != nil {
		t.Fatal(err)
	}
	tables, err := clusterTable(dir)
	if err != nil || len(tables) != 1 {
		t.Fatalf("%v, %v", tables, err)
	}
	want := []string{
		"tcp 0 2 100.0-200.0 1 1.5 2.0 - 100.00-200.00 1 - 1 - - 0 - ",
		"mux-tcp 0 1 50.0 0.50 1.5 2.0 - 50.00 0.50 - - - - 0 - shared cores",
		"mux-tcp 1 1 80.0 0.40 1.5 2.0 - 80.00 0.40 - - - - 0 - ",
	}
	for i, row := range tables[0].Rows {
		if got := strings.Join(row, " "); i >= len(want) || got != want[i] {
			t.Errorf("row %d: %q", i, got)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tcp-2", report.RunFile), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := clusterTable(dir); err == nil {
		t.Error("a run of another schema is no error")
	}
}

// TestPlanFits: the suite that is run without a word ends within an hour, and every part has a quick form.
func TestPlanFits(t *testing.T) {
	sum := 0.0
	seen := map[string]bool{}
	for _, p := range Parts() {
		if p.Dir != "" && p.Ratio == "" {
			t.Errorf("%s has no ratio", p.Name)
		}
		if seen[p.Name] || len(p.Quick) == 0 || p.Minutes <= 0 || p.What == "" {
			t.Errorf("%+v", p)
		}
		seen[p.Name] = true
		if !p.Apart {
			sum += p.Minutes
		}
	}
	if sum > 50 {
		t.Errorf("%v minutes in all, of 60 with building, which takes up to 6", sum)
	}
	if all, some := Names(true), Names(false); len(all) != len(Parts()) || len(some) >= len(all) {
		t.Errorf("%v, %v", all, some)
	}
}
