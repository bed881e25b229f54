package deploytest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
)

func loadCompose(t *testing.T) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{lab.Deploy("compose.yaml")}, cli.WithProfiles([]string{"load"}),
		cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCompose(t *testing.T) {
	p := loadCompose(t)
	for _, name := range []string{"etcd", "nats", "frontend", "worker", "load", "prometheus", "grafana"} {
		if _, ok := p.Services[name]; !ok {
			t.Errorf("service %s is missing", name)
		}
	}
	workers := 0
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				if _, err := os.Stat(v.Source); err != nil {
					t.Errorf("%s mounts what is not there: %v", name, err)
				}
			}
		}
		if s.Build == nil {
			if !strings.Contains(s.Image, ":") {
				t.Errorf("%s: image %s has no tag", name, s.Image)
			}
			continue
		}
		prog := program(s.Image)
		i := images(t)[s.Build.Target]
		if i == nil || s.Build.Target != prog {
			t.Errorf("%s: target %s for image %s", name, s.Build.Target, s.Image)
			continue
		}
		if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		env := imageEnv(t, prog)
		for k, v := range s.Environment {
			if v == nil {
				t.Errorf("%s: variable %s has no value", name, k)
				continue
			}
			env[k] = *v
		}
		acceptable(t, "compose service "+name, prog, s.Command, env)
		checkStop(t, name, s)
		switch prog {
		case "mockworker":
			workers = *s.Deploy.Replicas * atoi(t, settings(t, prog, s.Command, env)["num-workers"])
		case "frontend":
			want := listens(t, prog, settings(t, prog, s.Command, env))
			for _, port := range s.Ports {
				if key := strings.ToUpper(port.Protocol) + "/" + itoa(int(port.Target)); !want[key] {
					t.Errorf("%s publishes %s, on which it does not listen", name, key)
				}
			}
		}
	}
	if workers != 512 {
		t.Errorf("%d workers, not 512", workers)
	}
	if p.Services["load"].Profiles[0] != "load" {
		t.Error("the load would start with the cluster")
	}
}

// checkStop: Docker waits longer than the program may take to leave.
func checkStop(t *testing.T, name string, s types.ServiceConfig) {
	t.Helper()
	need := leaving
	for _, a := range s.Command {
		for _, flag := range []string{"--drain-grace=", "--drain-timeout="} {
			if v, ok := strings.CutPrefix(a, flag); ok {
				d, err := time.ParseDuration(v)
				if err != nil {
					t.Error(err)
				}
				need += d
			}
		}
	}
	if need > leaving && (s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < need) {
		t.Errorf("%s: stop_grace_period is shorter than the %v that leaving may take", name, need)
	}
}

// TestServersAreTheTestedVersions: what compose runs is what the tests of this repository run.
func TestServersAreTheTestedVersions(t *testing.T) {
	p := loadCompose(t)
	for service, from := range map[string]struct{ file, module, major string }{
		"etcd":       {filepath.Join(lab.Root(), "devservers", "go.mod"), "go.etcd.io/etcd/server/v3", "v"},
		"nats":       {filepath.Join(lab.Root(), "devservers", "go.mod"), "github.com/nats-io/nats-server/v2", ""},
		"prometheus": {lab.Deploy("test", "go.mod"), "github.com/prometheus/prometheus", "v"},
	} {
		b, err := os.ReadFile(from.file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(from.module) + ` v(\S+)`).FindSubmatch(b)
		if m == nil {
			t.Fatalf("%s is not in %s", from.module, from.file)
		}
		version := string(m[1])
		if service == "prometheus" { // module v0.316.0 is release v3.16.0
			f := strings.Split(version, ".")
			version = f[1][:1] + "." + strings.TrimLeft(f[1][1:], "0") + "." + f[2]
		}
		_, tag, _ := strings.Cut(p.Services[service].Image, ":")
		if want := from.major + version; tag != want && !slices.Contains([]string{want + "-alpine"}, tag) {
			t.Errorf("compose runs %s, tested is %s", p.Services[service].Image, want)
		}
	}
}
