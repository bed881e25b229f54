package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// packages lists every package of the root module as the go command sees it.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e",
		"-json=ImportPath,Dir,Doc,GoFiles,IgnoredGoFiles,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Dir = filepath.Join("..", "..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 5 {
		t.Fatalf("go list found %d packages; the test does not see the module", len(all))
	}
	return all
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		for _, line := range append(checkImports(p), checkLean(p)...) {
			t.Error(line)
		}
	}
}

func TestHouseRules(t *testing.T) {
	for _, p := range packages(t) {
		lines, err := checkHouse(p)
		if err != nil {
			t.Error(err)
		}
		for _, line := range lines {
			t.Error(line)
		}
	}
}

// TestNoServerInRootModule keeps the servers' modules out of what a user of the library downloads.
func TestNoServerInRootModule(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"go.etcd.io/etcd/server", "github.com/nats-io/nats-server",
		"github.com/stretchr/testify"} {
		if bytes.Contains(mod, []byte(server)) {
			t.Errorf("go.mod of the root module lists %s: servers belong into devservers/, tests are plain testing",
				server)
		}
	}
}

// TestRulesBite feeds the checks with packages that break each rule.
func TestRulesBite(t *testing.T) {
	for _, c := range []struct {
		name string
		pkg  pkg
		want string // "" = allowed
	}{
		{"sibling transport", pkg{ImportPath: module + "/transport/tcp", Imports: []string{module + "/transport/quic"}},
			"transport/tcp imports " + module +
				"/transport/quic: it may import transport, transport/internal/..., internal/program/seldom; " +
				"transports know the contract, never one another"},
		{"upward", pkg{ImportPath: module + "/transport", Imports: []string{module + "/mux"}},
			"it may import no package of this module"},
		{"concrete transport in the plane", pkg{ImportPath: module + "/responseplane",
			Imports: []string{module + "/transport/tcp"}}, "knows no implementation"},
		{"concrete transport in a helper", pkg{ImportPath: module + "/internal/lab/report",
			Imports: []string{module + "/transport/quic"}}, "takes transports through the contract"},
		{"concrete transport in planeflags", pkg{ImportPath: module + "/internal/program/planeflags",
			Imports: []string{module + "/transport/quic"}}, ""},
		{"wire with a module", pkg{ImportPath: module + "/mux/internal/wire",
			Imports: []string{"golang.org/x/sys/unix"}}, "of other modules it may import none"},
		{"library with flags", pkg{ImportPath: module + "/mux", Imports: []string{"flag"}},
			"flags belong to the commands"},
		{"library with http", pkg{ImportPath: module + "/discovery/etcd", Imports: []string{"net/http/httptrace"}},
			"forces no HTTP stack"},
		{"library with metrics", pkg{ImportPath: module + "/mux",
			Imports: []string{"github.com/prometheus/client_golang/prometheus"}}, "counters are atomics"},
		{"library with a helper", pkg{ImportPath: module + "/mux", Imports: []string{module + "/internal/program/cli"}},
			"it may import mux/internal/..., transport"},
		{"helper with a server", pkg{ImportPath: module + "/internal/lab/x",
			Imports: []string{"github.com/nats-io/nats-server/v2/server"}}, "servers live in the module devservers"},
		{"command with a command", pkg{ImportPath: module + "/cmd/a", Imports: []string{module + "/cmd/b/internal/x"}},
			"everything but one another"},
		{"command with its own part", pkg{ImportPath: module + "/cmd/a",
			Imports: []string{module + "/cmd/a/internal/x"}}, ""},
		{"command with everything", pkg{ImportPath: module + "/cmd/a", Imports: []string{module + "/transport/quic",
			"github.com/quic-go/quic-go", "flag", "net/http"}}, ""},
		{"no place", pkg{ImportPath: module + "/misc"}, "give it a place"},
		{"subtree", pkg{ImportPath: module + "/mux", Imports: []string{module + "/mux/internal/pipe", module +
			"/transport", "golang.org/x/sync/errgroup"}}, ""},
		{"tests over a transport", pkg{ImportPath: module + "/mux", XTestImports: []string{module + "/transport/memory",
			"go.uber.org/goleak", "testing"}}, ""},
		{"tests that look up", pkg{ImportPath: module + "/mux", TestImports: []string{module + "/responseplane"}},
			"mux imports " + module + "/responseplane in its tests"},
		{"etcd in nats", pkg{ImportPath: module + "/discovery/nats", Imports: []string{"go.etcd.io/etcd/client/v3"}},
			"of other modules it may import github.com/nats-io/nats.go"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(checkImports(c.pkg), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
	heavy := pkg{ImportPath: module + "/responseplane", Deps: []string{"fmt", "net/http"}}
	if got := checkLean(heavy); len(got) != 1 || !strings.Contains(got[0], "responseplane pulls in net/http") {
		t.Errorf("lean check: %q", got)
	}
}

func TestHouseRulesBite(t *testing.T) {
	const src = `package x

import (
	"log/slog"
	s "strings"
)

func init() {}

type T struct{}

func (T) init() {}

func f(err error) bool {
	slog.Info("x, see --lanes")
	return s.Contains(err.Error(), "refused")
}
`
	got, err := checkFile(library, "x.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"x.go:8: func init", "x.go:15: slog.Info uses", "x.go:15: names a command's flag",
		"x.go:16: strings.Contains on an error's text"}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
	if got, err := checkFile(command, "x.go", []byte(src)); err != nil || len(got) != 1 {
		t.Errorf("in a command: %q, %v", got, err)
	}
	wide := "package x\n\nvar a = `" + strings.Repeat("x", 200) + "`\n\n// " + strings.Repeat("x", 118) + "\nvar b = 1\n"
	if got, err := checkFile(helper, "x.go", []byte(wide)); err != nil || len(got) != 1 ||
		!strings.HasPrefix(got[0], "x.go:5: 121 columns") {
		t.Errorf("wide line: %q, %v", got, err)
	}
	long := "package x\n" + strings.Repeat("\n", maxLines)
	if got, err := checkFile(helper, "x.go", []byte(long)); err != nil || len(got) != 1 ||
		!strings.Contains(got[0], "one concept a file") {
		t.Errorf("long file: %q, %v", got, err)
	}
}
