package devserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
)

const (
	// modulePath is the root module's, told apart from those of bench and the like, which lie inside it.
	modulePath = "github.com/laneway-ai/laneway"
	// unusedAfter is when a binary that no longer fits any checkout in use is removed.
	unusedAfter = 14 * 24 * time.Hour
)

// BinaryEnv names the environment variable that holds the path of a devservers binary that was built beforehand;
// nothing is built then.
const BinaryEnv = "LANEWAY_DEVSERVERS"

// Build returns the path of the devservers binary, and builds it first when the user's cache does not have it: once for
// each state of the devservers module and version of Go, also when several processes ask at the same time. log (nil:
// silent) is told in one line each when it builds, waits or is done; a first build takes about 5 minutes on 2 cores. It
// needs the go command and a working directory inside a checkout of Laneway, unless BinaryEnv is set.
func Build(ctx context.Context, log func(string)) (string, error) {
	if log == nil {
		log = func(string) {}
	}
	if path := os.Getenv(BinaryEnv); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("devserver: %s: %w", BinaryEnv, err)
		}
		return path, nil
	}
	src, err := findSource()
	if err != nil {
		return "", err
	}
	key, err := sourceKey(src)
	if err != nil {
		return "", fmt.Errorf("devserver: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("devserver: no place for the binary (set HOME or XDG_CACHE_HOME): %w", err)
	}
	root := filepath.Join(cache, "laneway", "devservers")
	dir := filepath.Join(root, key)
	path := filepath.Join(dir, "devservers"+childproc.ExeSuffix)
	if use(path) {
		return path, nil
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("devserver: %w", err)
	}
	unlock, err := childproc.LockFile(ctx, filepath.Join(root, "lock"),
		func() { log("another process builds the etcd and NATS servers, waiting for it") })
	if err != nil {
		return "", fmt.Errorf("devserver: lock: %w", err)
	}
	defer unlock()
	if use(path) { // the one that held the lock built it
		return path, nil
	}
	log("building the etcd and NATS servers (once; with an empty Go cache this takes about 5 minutes)")
	start := time.Now()
	if err := build(ctx, src, path); err != nil {
		return "", err
	}
	log(fmt.Sprintf("built the etcd and NATS servers in %s: %s", time.Since(start).Round(100*time.Millisecond), path))
	prune(root, key)
	return path, nil
}

// use says whether the binary is there, and notes that it is in use.
func use(path string) bool {
	now := time.Now()
	return os.Chtimes(path, now, now) == nil
}

func build(ctx context.Context, src, path string) error {
	tmp := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	defer os.Remove(tmp)
	var out bytes.Buffer
	_, err := childproc.Run(ctx, childproc.Command{
		Dir: src, Path: "go", Args: []string{"build", "-ldflags=-s -w", "-o", tmp, "."}, Stdout: &out, Stderr: &out,
		// By itself: what the other modules of the workspace require must not change the servers.
		Env: append(os.Environ(), "GOWORK=off", "GOFLAGS="),
	})
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("devserver: building the etcd and NATS servers needs the go command (or a built binary "+
				"named by %s): %w", BinaryEnv, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("devserver: building the etcd and NATS servers: %w", context.Cause(ctx))
		}
		return fmt.Errorf("devserver: go build in %s: %w\n%s", src, err, lastLines(out.String(), 20))
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("devserver: %w", err)
	}
	return nil
}

// findSource walks up from the working directory to the module's root and returns its devservers folder.
func findSource() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("devserver: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if moduleOf(filepath.Join(dir, "go.mod")) == modulePath {
			return filepath.Join(dir, "devservers"), nil
		}
		if filepath.Dir(dir) == dir {
			return "",
				fmt.Errorf("devserver: %s is not inside a checkout of Laneway; run it there, or set %s to a built "+
					"devservers binary", start, BinaryEnv)
		}
	}
}

// moduleOf is the module path in a go.mod file, empty when there is none.
func moduleOf(goMod string) string {
	data, err := os.ReadFile(goMod)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "module" {
			return strings.Trim(f[1], `"`)
		}
	}
	return ""
}

// sourceKey names a state of the module: its files, and what compiles them.
func sourceKey(src string) (string, error) {
	names, err := filepath.Glob(filepath.Join(src, "*"))
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	files := 0
	for _, name := range names {
		base := filepath.Base(name)
		if base != "go.mod" && base != "go.sum" && filepath.Ext(base) != ".go" {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, base)
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", err
		}
		files++
	}
	if files == 0 {
		return "", fmt.Errorf("%s has no Go files", src)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// prune removes binaries of other states that have not been used for a while. Called with the lock held.
func prune(root, keep string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == keep {
			continue
		}
		dir := filepath.Join(root, e.Name())
		st, err := os.Stat(filepath.Join(dir, "devservers"+childproc.ExeSuffix))
		if err != nil {
			if st, err = os.Stat(dir); err != nil { // an interrupted build
				continue
			}
		}
		if time.Since(st.ModTime()) > unusedAfter {
			_ = os.RemoveAll(dir)
		}
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
