package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/netns"
	"github.com/laneway-ai/laneway/internal/lab/transportbench"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// netnsRun starts a command with --netns.
func netnsRun(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *lockedBuffer) {
	t.Helper()
	switch err := netns.Check(); {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("%v: CI has to run it", err)
	case err != nil:
		t.Skip(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(exe, append(args, "--netns")...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	stdout, stderr = new(lockedBuffer), new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { guard.Stop() })
	return cmd, stdout, stderr
}

// namespaces are those that the process has made and that are there.
func namespaces(t *testing.T, pid int) []string {
	t.Helper()
	names, err := filepath.Glob("/run/netns/laneway-" + strconv.Itoa(pid) + "-*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestNamespaces: one command has both sides in namespaces, and nothing is left of them.
func TestNamespaces(t *testing.T) {
	for _, args := range [][]string{
		{"transport", "--message-count=64", "--planes=tcp,quic", "--tables=messages", "--runs=1", "--json",
			"--log-level=info"},
		{"streams", "--item-count=256", "--planes=quic", "--lanes=1,4", "--streams=16", "--runs=1", "--json"},
	} {
		cmd, stdout, stderr := netnsRun(t, args...)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, stderr)
		}
		var r transportbench.Report
		if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil || !r.Remote || len(r.Tables) == 0 ||
			len(r.Tables[0].Cells) < 2 || r.Runs != 1 {
			t.Errorf("%v: %v\n%s", args, err, stdout)
		}
		if left := namespaces(t, cmd.Process.Pid); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
		if strings.Contains(stderr.String(), "stopping") {
			t.Errorf("the end of the server is told: %s", stderr)
		}
	}
}

// TestNamespacesEndWithTheirMaker: a signal removes them; one that was killed leaves no process, and the next run
// removes its namespaces.
func TestNamespacesEndWithTheirMaker(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		cmd, _, stderr := netnsRun(t, "streams", "--planes=tcp", "--lanes=1", "--streams=16", "--item-count=1000000000",
			"--runs=1")
		pid := cmd.Process.Pid
		for end := time.Now().Add(30 * time.Second); !strings.Contains(stderr.String(),
			"repetition 1"); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the measurement does not begin: %s", stderr)
			}
		}
		if len(namespaces(t, pid)) != 3 {
			t.Errorf("namespaces %v, expected the hub's and two more", namespaces(t, pid))
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the code says it
		if code := cmd.ProcessState.ExitCode(); sig == syscall.SIGTERM &&
			(code != cli.ExitFailure || !strings.Contains(stderr.String(), "stopped by signal")) {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		if sig == syscall.SIGTERM {
			if left := namespaces(t, pid); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
			continue
		}
		if len(namespaces(t, pid)) == 0 {
			t.Error("a process that was killed has removed its namespaces")
		}
		next, _, stderr := netnsRun(t, "transport", "--message-count=64", "--planes=tcp", "--tables=lanes", "--runs=1")
		if err := next.Wait(); err != nil || !strings.Contains(stderr.String(), "that a run had left behind") {
			t.Errorf("%v\n%s", err, stderr)
		}
		if left := namespaces(t, pid); len(left) > 0 {
			t.Errorf("%v are left after the next run", left)
		}
	}
}
