package cli

import (
	"context"
	"log/slog"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	twins    = regexp.MustCompile(`; (LANEWAY_[A-Z0-9_]+)\]`)
	commands = regexp.MustCompile(`(?m)^  ([a-z]+) {2,}[a-z]`)
)

// TestSuite: the list of all programs' variables is what their --help says.
func TestSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	dir := t.TempDir()
	programs := []string{"cmd/frontend", "cmd/mockworker", "cmd/loadgen", "cmd/cluster", "analysis"}
	args := []string{"build", "-o", dir}
	for _, p := range programs {
		args = append(args, "github.com/laneway-ai/laneway/"+p)
	}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	found := map[string]bool{}
	help := func(program string, command ...string) string {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, filepath.Base(program)),
			append(command, "--help")...).Output()
		if err != nil {
			t.Fatalf("%s %v --help: %v", program, command, err)
		}
		n := 0
		for _, m := range twins.FindAllStringSubmatch(string(out), -1) {
			found[m[1]] = true
			n++
		}
		if n < 2 {
			t.Errorf("%s %v --help names %d variables", program, command, n)
		}
		return string(out)
	}
	seen := 0
	for _, p := range programs {
		_, list, _ := strings.Cut(help(p), "\nCommands ")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range commands.FindAllStringSubmatch(list, -1) {
			help(p, m[1])
			seen++
		}
	}
	if seen < 9 {
		t.Errorf("%d commands were found", seen)
	}
	if want := slices.Sorted(maps.Keys(found)); !slices.Equal(suite, want) {
		for _, n := range want {
			if !slices.Contains(suite, n) {
				t.Errorf("%s is missing in suite.go", n)
			}
		}
		for _, n := range suite {
			if !found[n] {
				t.Errorf("%s in suite.go is no program's", n)
			}
		}
	}
}

// TestVariablesOfOthers: a variable that another program has is passed over at a run, and no program takes it for a
// misspelling.
func TestVariablesOfOthers(t *testing.T) {
	const other = "LANEWAY_ETCD_ENDPOINTS"
	declare := func(a *App) { a.Group("G").String("server-endpoints", "", "") }
	a, _, errs := newTest(other+"=x", "LANEWAY_SERVER_ENDPOINT=y", "LANEWAY_WHATEVER=z")
	declare(a)
	if code := a.Run(nil, func(context.Context, *slog.Logger) error { return nil }); code != ExitOK {
		t.Fatalf("exit code %d", code)
	}
	for line, want := range map[string]bool{other: false, "did_you_mean=LANEWAY_SERVER_ENDPOINTS": true,
		"LANEWAY_WHATEVER": true} {
		if strings.Contains(errs.String(), line) != want {
			t.Errorf("%q in the log is %v:\n%s", line, !want, errs)
		}
	}
	if n := strings.Count(errs.String(), "did_you_mean"); n != 1 {
		t.Errorf("%d suggestions, want 1:\n%s", n, errs)
	}

	a, _, errs = newTest(other + "=x")
	declare(a)
	if code := a.Run([]string{"--check-config"}, nil); code != ExitFailure || !strings.Contains(errs.String(), other+
		": sets nothing in prog\n") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
