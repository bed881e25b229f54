package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// asProgram has the test binary be the program; givesUp has it be an etcd that gives up.
const (
	asProgram = "DEVSERVERS_TEST_PROGRAM"
	givesUp   = "DEVSERVERS_TEST_GIVES_UP"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:]))
	}
	if dir := os.Getenv(givesUp); dir != "" {
		h := exitHook{&dataDir{path: dir, own: true}}
		log := zap.New(zapcore.NewNopCore(), zap.WithPanicHook(h))
		log.Panic("failed to write", zap.Error(os.ErrDeadlineExceeded))
	}
	os.Exit(m.Run())
}

// command is a process of this test binary in the place of `devservers args`, through wrap.
func command(t *testing.T, env string, wrap []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	all := append(append(wrap[:len(wrap):len(wrap)], exe), args...)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Env = append(os.Environ(), env)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestHelpAndVersion(t *testing.T) {
	for args, want := range map[string]string{
		"--help": "devservers etcd [flags]", "-h": "devservers nats [flags]", "--version": "devservers ",
		"etcd --help": "-data-dir", "nats -h": "-max-payload",
	} {
		code, out, errs := command(t, asProgram+"=1", nil, strings.Fields(args)...)
		if code != 0 || !strings.Contains(out, want) || errs != "" {
			t.Errorf("%s: exit code %d, %q on standard output, %q on standard error", args, code, out, errs)
		}
	}
	for args, want := range map[string]string{
		"": "say which server", "redis": `unknown server "redis"`, "etcd --nonsense": "-nonsense",
		"nats extra": `unexpected argument "extra"`,
	} {
		code, out, errs := command(t, asProgram+"=1", nil, strings.Fields(args)...)
		if code != exitFailed || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q on standard output, %q on standard error", args, code, out, errs)
		}
	}
}

func TestHasRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := hasRoom(dir, 3<<20+1); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := hasRoom(file, 1); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file in the place of the directory: %v", err)
	}
}

// TestFullDisk runs etcd on a file system of 2 MiB: one line says what is wrong, and nothing is left.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	mount := "mount -t tmpfs -o size=2m none " + dir + " && "
	unshare := []string{"unshare", "--user", "--map-root-user", "--mount", "sh", "-c"}
	if os.Getuid() == 0 {
		unshare = []string{"unshare", "--mount", "sh", "-c"}
	}
	if err := exec.CommandContext(t.Context(), unshare[0], append(unshare[1:], mount+"true")...).Run(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no mount here: %v: CI has to be root or allow user namespaces", err)
		}
		t.Skipf("no mount here: %v", err)
	}
	for _, args := range [][]string{{"etcd"}, {"etcd", "--data-dir=" + dir + "/data"}} {
		// The listing comes after the program, on standard output.
		wrap := append(unshare, mount+`export TMPDIR=`+dir+`; "$@"; code=$?; ls -A `+dir+`; exit $code`, "sh")
		code, out, errs := command(t, asProgram+"=1", wrap, args...)
		if code != exitFailed || out != "" || strings.Count(errs, "\n") != 1 ||
			!strings.Contains(errs, "no space left") || !strings.Contains(errs, "--data-dir") {
			t.Errorf("%v: exit code %d\nleft: %s\nstandard error: %s", args, code, out, errs)
		}
	}
}

// TestGivesUp: what etcd panics with later becomes one error too.
func TestGivesUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	code, _, errs := command(t, givesUp+"="+dir, nil)
	if code != exitFailed || errs != "devservers: etcd gave up: failed to write: "+os.ErrDeadlineExceeded.Error()+"\n" {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data is still there: %v", err)
	}
}
