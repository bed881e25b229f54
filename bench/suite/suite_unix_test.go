//go:build unix

package suite

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
			script("good", "echo one"), script("fails", "echo two; echo why >&2; exit "+c.code), script("after", "echo three"),
		}})
		failed, ok := errors.AsType[*PartsError](err)
		if !ok || failed.Bad != c.bad || len(failed.Failed) != 1 || failed.Failed[0] != "fails" || ix == nil || at != dir {
			t.Errorf("exit code %s: %v", c.code, err)
		}
		got, page := index(t, dir)
		if len(got.Parts) != 3 || got.Parts[1].ExitCode != int(c.code[0]-'0') || got.Parts[2].ExitCode != 0 || got.Partial != "" {
			t.Errorf("%+v", got.Parts)
		}
		for _, want := range []string{"one\n", "**Failed**, exit code " + c.code, "why\n", "three\n"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q:\n%s", want, page)
			}
		}
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
	_, _, err := Run(ctx, Config{Self: "/bin/sh", Out: dir, Say: say, parts: []Part{script("first", "echo one"), script("long", "sleep 600"), script("never", "echo three")}})
	if !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	ix, page := index(t, dir)
	if len(ix.Parts) != 2 || ix.Parts[0].ExitCode != 0 || ix.Parts[1].ExitCode != -1 || !strings.Contains(ix.Partial, "2 of 3 parts were begun: enough") || ix.Ended == "" {
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
	if got := (Part{Artifacts: true, Args: []string{"http", "--pairs=3"}}).args("at"); strings.Join(got, " ") != "http --artifact-dir=at/run --pairs=3" {
		t.Errorf("%q", got)
	}
	p.Artifacts = false
	if _, _, err := Run(t.Context(), Config{Self: "/bin/sh", Out: dir, Say: func(string) {}, parts: []Part{p}}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "thrice", "stdout.txt")); err != nil || string(b) != "x y\nx y\nx y\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSummary: the passes of a benchmark become one line for each of its figures.
func TestSummary(t *testing.T) {
	text := "goos: linux\nBenchmarkA/x-2   \t 100\t 10.0 ns/op\t 3 B/op\nBenchmarkB-2 7 1 ns/op\nPASS\nBenchmarkA/x-2 100 30 ns/op 4 B/op\nBenchmarkA/x-2 100 20 ns/op 5 B/op\n"
	want := "A/x-2\n    ns/op                20 [10 to 30] of 3\n    B/op                 4 [3 to 5] of 3\nB-2\n    ns/op                1\n"
	if got := summary(text); got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if got := summary("PASS\nok\n"); got != "" {
		t.Errorf("%q of nothing", got)
	}
}

// TestPlanFits: the suite that is run without a word ends within an hour, and every part has a quick form.
func TestPlanFits(t *testing.T) {
	sum := 0.0
	seen := map[string]bool{}
	for _, p := range Parts() {
		if seen[p.Name] || len(p.Quick) == 0 || p.Minutes <= 0 || p.What == "" {
			t.Errorf("%+v", p)
		}
		seen[p.Name] = true
		if !p.Apart {
			sum += p.Minutes
		}
	}
	if sum > 55 {
		t.Errorf("%v minutes in all, of 60 with building", sum)
	}
	if all, some := Names(true), Names(false); len(all) != len(Parts()) || len(some) >= len(all) {
		t.Errorf("%v, %v", all, some)
	}
}
