package deploytest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
)

// image is one stage of the Dockerfile that becomes an image.
type image struct {
	entry, health []string
	env           map[string]string
	user          string
	copies        map[string]string // target -> source below /out of the build
	base          string
	expose        []string
}

// images reads the Dockerfile.
func images(t *testing.T) map[string]*image {
	t.Helper()
	b, err := os.ReadFile(lab.Deploy("docker", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]*image)
	var now *image
	list := func(s string) (v []string) {
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Errorf("Dockerfile: %s: %v", s, err)
		}
		return v
	}
	for line := range strings.Lines(string(b)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "FROM":
			f := strings.Fields(rest)
			now = &image{base: f[0], env: make(map[string]string), copies: make(map[string]string)}
			out[f[2]] = now
		case "ENTRYPOINT":
			now.entry = list(rest)
		case "HEALTHCHECK":
			if _, cmd, ok := strings.Cut(rest, "CMD "); ok {
				now.health = list(cmd)
			}
		case "ENV":
			for _, kv := range strings.Fields(rest) {
				k, v, _ := strings.Cut(kv, "=")
				now.env[k] = v
			}
		case "USER":
			now.user = rest
		case "EXPOSE":
			now.expose = strings.Fields(rest)
		case "COPY":
			f := slices.DeleteFunc(strings.Fields(rest), func(s string) bool { return strings.HasPrefix(s, "--") })
			now.copies[f[1]] = f[0]
		}
	}
	return out
}

// imageEnv is the environment that an image of ours brings, as a new map.
func imageEnv(t *testing.T, prog string) map[string]string {
	t.Helper()
	i := images(t)[prog]
	if i == nil {
		t.Fatalf("the Dockerfile has no target %q", prog)
	}
	out := make(map[string]string)
	for k, v := range i.env {
		out[k] = v
	}
	return out
}

func TestDockerfile(t *testing.T) {
	all := images(t)
	for _, prog := range []string{"frontend", "mockworker", "loadgen"} {
		i := all[prog]
		if i == nil {
			t.Fatalf("no target %s", prog)
		}
		if i.base != "scratch" || i.user != "65532:65532" {
			t.Errorf("%s: from %s as user %s", prog, i.base, i.user)
		}
		if len(i.entry) != 1 || i.copies[i.entry[0]] != "/out/"+prog {
			t.Errorf("%s: entry point %v, copied from %v", prog, i.entry, i.copies)
		}
		acceptable(t, "image "+prog, prog, nil, i.env)
		if prog == "loadgen" {
			continue
		}
		if len(i.health) != 2 || i.health[0] != i.entry[0] {
			t.Fatalf("%s: health check %v", prog, i.health)
		}
		// The health check gets the image's environment, not the container's command line.
		acceptable(t, "health check of "+prog, prog, i.health[1:], i.env)
		exposed := make(map[string]bool)
		for _, e := range i.expose {
			ports, proto, _ := strings.Cut(e, "/")
			first, last, isRange := strings.Cut(ports, "-")
			if !isRange {
				last = first
			}
			for p := atoi(t, first); p <= atoi(t, last); p++ {
				exposed[strings.ToUpper(orTCP(proto))+"/"+itoa(p)] = true
			}
		}
		want := listens(t, prog, settings(t, prog, nil, i.env))
		for k := range want {
			if !exposed[k] {
				t.Errorf("%s listens on %s, which is not exposed", prog, k)
			}
		}
		if len(exposed) != len(want) {
			t.Errorf("%s: exposed %v, listens on %v", prog, exposed, want)
		}
	}
	b, err := os.ReadFile(lab.Deploy("docker", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte("deploy/docker/build.sh /out")) {
		t.Error("the image is not built by build.sh, which is what is tested here")
	}
}

// TestImageBuildIsReproducible builds what a Docker context has, in another folder and without a repository, and finds
// the same bytes.
func TestImageBuildIsReproducible(t *testing.T) {
	src := t.TempDir()
	copyContext(t, src)
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(src, "deploy", "docker", "build.sh"), out)
	revision, err := exec.CommandContext(t.Context(), "git", "-C", lab.Root(), "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatalf("git rev-parse: %v", err)
	}
	cmd.Env = append(os.Environ(), "REVISION="+strings.TrimSpace(string(revision)))
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, b)
	}
	for _, prog := range []string{"frontend", "mockworker", "loadgen"} {
		a, err := os.ReadFile(filepath.Join(out, prog))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(bin(prog))
		if err != nil {
			t.Fatal(err)
		}
		if sha256.Sum256(a) != sha256.Sum256(b) {
			t.Errorf("%s differs between a build in the repository and one from a Docker context", prog)
		}
	}
	code, version, _ := lab.Run(t, nil, filepath.Join(out, "frontend"), "--version")
	if code != 0 || !strings.Contains(version, strings.TrimSpace(string(revision))) {
		t.Errorf("--version: %d %q", code, version)
	}
}

// copyContext copies what the .dockerignore lets through: it holds "**", lines "!PATH" and then what is left out again.
func copyContext(t *testing.T, to string) {
	t.Helper()
	b, err := os.ReadFile(lab.Deploy("docker", "Dockerfile.dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	var in, out []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line == "**" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "!"):
			in = append(in, strings.TrimSuffix(line[1:], "/**"))
		case strings.HasPrefix(line, "**/"):
			out = append(out, line[3:])
		default:
			t.Fatalf(".dockerignore: %q: this test does not know such a line", line)
		}
	}
	copied := 0
	for _, root := range in {
		err := filepath.WalkDir(filepath.Join(lab.Root(), root), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			for _, pattern := range out {
				if ok, err := filepath.Match(pattern, d.Name()); err != nil || ok {
					if d.IsDir() {
						return fs.SkipDir
					}
					return err
				}
			}
			if d.IsDir() {
				return nil
			}
			rel, err := filepath.Rel(lab.Root(), path)
			if err != nil {
				return err
			}
			copied++
			return copyFile(path, filepath.Join(to, rel))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if copied < 100 {
		t.Fatalf("only %d files are in the context", copied)
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, info.Mode().Perm())
}

// TestFromAnEmptyRoot runs the programs as a container does: a root folder with one file in it, a user that owns
// nothing.
func TestFromAnEmptyRoot(t *testing.T) {
	if os.Getuid() != 0 {
		lab.Missing(t, "changing the root folder needs root")
	}
	all := images(t)
	jail := func(prog string) string {
		dir := t.TempDir()
		for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := copyFile(bin(prog), filepath.Join(dir, all[prog].entry[0])); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	inside := func(dir string) syscall.SysProcAttr {
		return syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	roots := make(map[string]string)
	c := startCluster(t, clusterOptions{processes: 1, workersEach: 4,
		program: func(prog string) string { roots[prog] = jail(prog); return all[prog].entry[0] },
		options: func(name string) lab.Options {
			prog := "mockworker"
			if name == "frontend" {
				prog = name
			}
			if roots[prog] == "" {
				roots[prog] = jail(prog)
			}
			return lab.Options{Name: name, Dir: "/", Attr: inside(roots[prog])}
		},
	})
	for prog, admin := range map[string]string{"frontend": c.frontend.Admin, "mockworker": c.workers[0].Admin} {
		health := lab.Start(t, lab.Options{Name: "health check", Dir: "/", Attr: inside(roots[prog]),
			Env: []string{"LANEWAY_ADMIN_ADDR=" + admin}}, all[prog].health[0], all[prog].health[1:]...)
		if err := health.Wait(30 * time.Second); err != nil {
			t.Errorf("health check of %s: %v\n%s", prog, err, health.Log())
		}
	}

	// The generator writes its report into a folder of its user's.
	dir := jail("loadgen")
	reports := filepath.Join(dir, "reports")
	if err := os.Mkdir(reports, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(reports, 65532, 65532); err != nil {
		t.Fatal(err)
	}
	load := lab.Start(t, lab.Options{Name: "loadgen", Dir: "/reports", Attr: inside(dir)}, all["loadgen"].entry[0],
		"--url=http://"+c.frontend.HTTP, "--concurrency=8", "--request-count=64", "--isl=16", "--osl=16", "--audit=on",
		"--ui=none", "--metrics-url=http://"+c.frontend.Admin+"/metrics")
	if err := load.Wait(2 * time.Minute); err != nil {
		t.Fatalf("loadgen: %v\n%s", err, load.Log())
	}
	if found, err := filepath.Glob(filepath.Join(reports, "runs", "*", "run.json")); err != nil || len(found) != 1 {
		t.Errorf("reports: %v %v", found, err)
	}
	for _, p := range append(c.workers, c.frontend) {
		if err := p.Term(90 * time.Second); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	code := -1
	health := lab.Start(t, lab.Options{Name: "health check", Dir: "/", Attr: inside(roots["frontend"]),
		Env: []string{"LANEWAY_ADMIN_ADDR=" + c.frontend.Admin}}, all["frontend"].health[0],
		all["frontend"].health[1:]...)
	if err, ok := health.Wait(30 * time.Second).(*exec.ExitError); ok {
		code = err.ExitCode()
	}
	if code != 1 {
		t.Errorf("the health check of a process that is gone ends with %d", code)
	}
}
