package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
)

const (
	modulePath  = "github.com/laneway-ai/laneway"
	unusedAfter = 14 * 24 * time.Hour // when a binary that no longer fits any checkout in use is removed
)

// Programs are the binaries that a cluster run starts.
type Programs struct {
	Frontend, Worker, Loadgen string
	// Servers is the devservers binary. Empty when etcd and NATS run elsewhere.
	Servers string
	// Revision says what they were built from: the revision of the repository, or a hash of the binaries where none is
	// recorded.
	Revision string
}

// siblings are the programs of this module; Build makes them from ./cmd/NAME.
var siblings = []string{"frontend", "mockworker", "loadgen"}

const serversName = "devservers"

// FindPrograms takes the programs from a directory (--bin-dir). servers says whether etcd and NATS are to be started
// too.
func FindPrograms(dir string, servers bool) (Programs, error) {
	var errs []error
	at := func(name string) string {
		path, err := filepath.Abs(filepath.Join(dir, name+childproc.ExeSuffix))
		if err == nil {
			var st os.FileInfo
			if st, err = os.Stat(path); err == nil && st.IsDir() {
				err = fmt.Errorf("%s is a directory", path)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--bin-dir %s does not have the program %s: %w", dir, name, err))
		}
		return path
	}
	p := Programs{Frontend: at(siblings[0]), Worker: at(siblings[1]), Loadgen: at(siblings[2])}
	if servers {
		if p.Servers = os.Getenv(devserver.BinaryEnv); p.Servers == "" {
			p.Servers = at(serversName)
		}
	}
	if len(errs) > 0 {
		return Programs{}, errors.Join(errs...)
	}
	p.Revision = recordedRevision(p.Frontend)
	if p.Revision == "" {
		key, err := hashFiles(p.Frontend, p.Worker, p.Loadgen)
		if err != nil {
			return Programs{}, err
		}
		p.Revision = "binaries " + key
	}
	return p, nil
}

// BuildPrograms builds the programs from the checkout that the working directory is in, into the user's cache, and says
// so. The Go command's own cache makes a second time quick.
func BuildPrograms(ctx context.Context, servers bool, say func(string)) (Programs, error) {
	root, err := moduleRoot()
	if err != nil {
		return Programs{}, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Programs{}, fmt.Errorf("no place for built programs (set HOME or XDG_CACHE_HOME, or use --bin-dir): %w",
			err)
	}
	dir, err := build(ctx, root, filepath.Join(cache, "laneway", "bin"), say)
	if err != nil {
		return Programs{}, err
	}
	p := Programs{}
	for i, path := range []*string{&p.Frontend, &p.Worker, &p.Loadgen} {
		*path = filepath.Join(dir, siblings[i]+childproc.ExeSuffix)
	}
	if p.Revision = gitRevision(ctx, root); p.Revision == "" {
		p.Revision = "binaries " + filepath.Base(dir)
	}
	if servers {
		if p.Servers, err = devserver.Build(ctx, say); err != nil {
			return Programs{}, err
		}
	}
	return p, nil
}

// build compiles into a place of this checkout, where the Go command sees what is still up to date, and puts what came
// out into a directory that is named after the content and never changes: a build beside a run does not touch the
// programs of the run.
func build(ctx context.Context, root, cache string, say func(string)) (string, error) {
	place := sha256.Sum256([]byte(root + "\x00" + runtime.Version()))
	stage := filepath.Join(cache, "build-"+hex.EncodeToString(place[:8]))
	if err := os.MkdirAll(stage, 0o755); err != nil {
		return "", fmt.Errorf("place for built programs: %w", err)
	}
	unlock, err := childproc.LockFile(ctx, filepath.Join(cache, "lock"),
		func() { say("another process builds the programs, waiting for it") })
	if err != nil {
		return "", fmt.Errorf("place for built programs: lock: %w", err)
	}
	defer unlock()

	say("building " + strings.Join(siblings, ", ") + " (with an empty Go cache this takes a minute or two)")
	began := time.Now()
	args := []string{"build", "-buildvcs=false", "-o", stage + string(filepath.Separator)}
	var built []string
	for _, s := range siblings {
		args = append(args, "./cmd/"+s)
		built = append(built, filepath.Join(stage, s+childproc.ExeSuffix))
	}
	if err := goCommand(ctx, root, args); err != nil {
		return "", err
	}
	key, err := hashFiles(built...)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, key)
	if err := publish(built, dir); err != nil {
		return "", fmt.Errorf("place for built programs: %w", err)
	}
	say(fmt.Sprintf("built in %s: %s", time.Since(began).Round(100*time.Millisecond), dir))
	prune(cache, filepath.Base(stage), key)
	return dir, nil
}

func goCommand(ctx context.Context, dir string, args []string) error {
	var out bytes.Buffer
	_, err := childproc.Run(ctx, childproc.Command{Dir: dir, Path: "go", Args: args, Stdout: &out, Stderr: &out})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("building the programs: %w", context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("building the programs needs the go command; name a directory that holds them built with "+
			"--bin-dir: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return fmt.Errorf("go %s in %s: %w\n%s", args[0], dir, err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
}

// publish copies the binaries into dir, whole or not at all. A dir that is there holds the same already. Called with
// the lock held.
func publish(files []string, dir string) error {
	now := time.Now()
	if os.Chtimes(dir, now, now) == nil { // notes that it is in use, for prune
		return nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, f := range files {
		if err := copyFile(f, filepath.Join(tmp, filepath.Base(f))); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// prune removes what was not used for a while. Called with the lock held; what it cannot remove stays for the next
// time.
func prune(cache string, keep ...string) {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || !e.IsDir() || time.Since(st.ModTime()) < unusedAfter {
			continue
		}
		kept := false
		for _, k := range keep {
			kept = kept || k == e.Name()
		}
		if !kept {
			_ = os.RemoveAll(filepath.Join(cache, e.Name()))
		}
	}
}

func hashFiles(files ...string) (string, error) {
	h := sha256.New()
	for _, f := range files {
		in, err := os.Open(f)
		if err != nil {
			return "", fmt.Errorf("built program: %w", err)
		}
		_, err = io.Copy(h, in)
		in.Close()
		if err != nil {
			return "", fmt.Errorf("built program: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// moduleRoot walks up from the working directory to the module's root.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
			for line := range strings.Lines(string(data)) {
				if f := strings.Fields(line); len(f) >= 2 && f[0] == "module" && strings.Trim(f[1], `"`) == modulePath {
					return dir, nil
				}
			}
		}
		if filepath.Dir(dir) == dir {
			return "",
				fmt.Errorf("%s is not inside a checkout of Laneway, so the programs cannot be built: name the "+
					"directory that holds %s and %s with --bin-dir",
					start, strings.Join(siblings, ", "), serversName)
		}
	}
}

// gitRevision is the checkout's revision, with a mark when tracked files were changed; empty without git.
func gitRevision(ctx context.Context, root string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	rev, err := git("rev-parse", "HEAD")
	if err != nil {
		return ""
	}
	changed, err := git("--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
	if err != nil || changed != "" {
		rev += " with changes"
	}
	return rev
}

// recordedRevision is what the linker recorded in a binary, empty when it did not.
func recordedRevision(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return ""
	}
	rev := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value + rev
		case s.Key == "vcs.modified" && s.Value == "true":
			rev += " with changes"
		}
	}
	if strings.HasPrefix(rev, " ") {
		return ""
	}
	return rev
}
