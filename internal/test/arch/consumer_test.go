package arch

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// consumer is the program of a platform team that plugs the library in: both sides, all planes of a network.
const consumer = `package main

import (
	"fmt"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

func main() {
	fmt.Println(responseplane.FrontendConfig{}.Validate(), responseplane.WorkerConfig{}.Validate(), quic.Config{}, tcp.Config{})
}
`

// servers are modules that a user of the library must never find in the list of what his program depends on.
var servers = []string{
	"go.etcd.io/etcd/server/v3", "github.com/nats-io/nats-server/v2", "go.etcd.io/bbolt", "go.etcd.io/raft/v3",
	"k8s.io/api", "sigs.k8s.io/kustomize/api", "github.com/prometheus/prometheus", "github.com/hashicorp/yamux",
	"github.com/openai/openai-go",
}

// A module of its own that requires this one builds, and what it then depends on has no server in it.
func TestConsumerModule(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("main.go", consumer)
	write("go.mod", "module example.com/platform\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+
		root+"\n")
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	write("go.sum", string(sum))

	// -mod=mod lets go write the indirect requirements, as go mod tidy would.
	goTool(t, dir, "build", "-mod=mod", "-o", filepath.Join(dir, "platform"), ".")
	modules := strings.Fields(goTool(t, dir, "list", "-mod=mod", "-f", "{{.Path}}", "-m", "all"))
	if !slices.Contains(modules, module) || !slices.Contains(modules, "github.com/quic-go/quic-go") {
		t.Fatalf("go list -m all names neither this module nor quic-go; the test does not see the modules: %v", modules)
	}
	for _, m := range servers {
		if slices.Contains(modules, m) {
			t.Errorf("a user of the library gets module %s", m)
		}
	}
	// What is linked is much less: no client of a discovery backend, no Prometheus.
	packages := strings.Fields(goTool(t, dir, "list", "-mod=mod", "-deps", "."))
	for _, p := range packages {
		for _, prefix := range []string{"github.com/nats-io/", "go.etcd.io/", "google.golang.org/",
			"github.com/prometheus/", "go.opentelemetry.io/"} {
			if strings.HasPrefix(p, prefix) {
				t.Errorf("a program that uses responseplane over quic and tcp links %s", p)
			}
		}
	}
}

func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}
