package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// planeRun is a process that runs `loadgen plane`.
type planeRun struct {
	cmd            *exec.Cmd
	stdout, stderr lockedBuffer
}

// lockedBuffer is read while the process writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startPlane starts `loadgen plane` with a small load and the arguments.
func startPlane(t *testing.T, args ...string) *planeRun {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"plane", "--concurrency=24", "--engines=4", "--frontends=1", "--warmup-request-count=0", "--osl=32",
		"--inter-token-latency=10ms", "--udp-recv-buffer=1MiB", "--udp-send-buffer=1MiB"}
	r := &planeRun{cmd: exec.Command(exe, append(all, args...)...)}
	r.cmd.Env = append(os.Environ(), asProgram+"=1")
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// wait returns the exit code.
func (r *planeRun) wait(t *testing.T) int {
	t.Helper()
	guard := time.AfterFunc(time.Minute, func() { _ = r.cmd.Process.Kill() })
	defer guard.Stop()
	_ = r.cmd.Wait() // the code says it
	return r.cmd.ProcessState.ExitCode()
}

// children are the processes that the run has started, by role.
func (r *planeRun) children(t *testing.T) map[string][]int {
	t.Helper()
	all := make(map[string][]int)
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if fields[0] == "Z" || fields[1] != strconv.Itoa(r.cmd.Process.Pid) {
			continue
		}
		dir := filepath.Dir(path)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		env, _ := os.ReadFile(filepath.Join(dir, "environ")) // of one that has just ended: empty
		for _, v := range strings.Split(string(env), "\x00") {
			if role, ok := strings.CutPrefix(v, planebench.RoleEnv+"="); ok {
				all[role] = append(all[role], pid)
			}
		}
	}
	return all
}

// loaded waits until two workers and a frontend are in the middle of the load. The run must log at level debug.
func (r *planeRun) loaded(t *testing.T) map[string][]int {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c := r.children(t)
		if len(c["worker"]) == 2 && len(c["frontend"]) == 1 && strings.Contains(r.stderr.String(),
			"the load has begun") {
			return c
		}
		if time.Now().After(deadline) {
			_ = r.cmd.Process.Kill()
			t.Fatalf("the children did not come up: %v\n%s", c, r.stderr.String())
		}
	}
}

// gone fails when one of the processes is still there.
func gone(t *testing.T, children map[string][]int) {
	t.Helper()
	for role, pids := range children {
		for _, pid := range pids {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil &&
				bytes.Contains(b, []byte(planebench.RoleEnv)) {
				t.Errorf("%s %d was left running", role, pid)
			}
		}
	}
}

func TestPlane(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r := startPlane(t, "--response-plane=tcp,quic", "--delivery=pull,sink", "--request-count=30", "--label=x",
		"--artifact-dir="+dir)
	if code := r.wait(t); code != cli.ExitOK {
		t.Fatalf("exit code %d\n%s", code, r.stderr.String())
	}
	for _, want := range []string{"tcp-pull", "tcp-sink", "quic-pull", "quic-sink", "quic-sink / tcp-pull",
		"written to " + dir} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, r.stdout.String())
		}
	}
	var report planebench.Report
	b, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil || json.Unmarshal(b, &report) != nil {
		t.Fatalf("run.json: %v", err)
	}
	if report.Schema != planebench.Schema || report.Label != "x" || len(report.Runs) != 4 ||
		report.Config["osl"] != 32.0 || report.Config["lanes"] != 1.0 {
		t.Errorf("run.json says schema %q, label %q, %d runs, config %v", report.Schema, report.Label, len(report.Runs),
			report.Config)
	}
	for _, run := range report.Runs {
		if run.Wrong != 0 || run.ErrorsAll != 0 || run.Completed < 30 || run.Invalid != "" {
			t.Errorf("%s-%s: %d wrong, %d errors, %d completed, %q", run.Plane, run.Delivery, run.Wrong, run.ErrorsAll,
				run.Completed, run.Invalid)
		}
	}
}

func TestPlaneWorkerKilled(t *testing.T) {
	r := startPlane(t, "--duration=1h", "--request-count=0", "--log-level=debug", "--artifact-dir="+t.TempDir())
	children := r.loaded(t)
	if err := syscall.Kill(children["worker"][0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(t); code != cli.ExitBadRun {
		t.Errorf("exit code %d, expected %d", code, cli.ExitBadRun)
	}
	if want := fmt.Sprintf("(pid %d) has failed: signal: killed",
		children["worker"][0]); !strings.Contains(r.stderr.String(), want) {
		t.Errorf("the error does not say %q:\n%s", want, r.stderr.String())
	}
	gone(t, children)
}

func TestPlaneInterrupted(t *testing.T) {
	r := startPlane(t, "--duration=1h", "--request-count=0", "--log-level=debug", "--artifact-dir="+t.TempDir())
	children := r.loaded(t)
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(t); code != cli.ExitFailure {
		t.Errorf("exit code %d, expected %d", code, cli.ExitFailure)
	}
	if !strings.Contains(r.stderr.String(), "stopped by signal: interrupt") {
		t.Errorf("the error does not name the signal:\n%s", r.stderr.String())
	}
	gone(t, children)
}

// TestPlaneParentKilled: children end with their standard input, whatever became of the parent.
func TestPlaneParentKilled(t *testing.T) {
	r := startPlane(t, "--duration=1h", "--request-count=0", "--log-level=debug", "--artifact-dir="+t.TempDir())
	children := r.loaded(t)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.wait(t)
	deadline := time.Now().Add(30 * time.Second)
	for _, pids := range children {
		for _, pid := range pids {
			for {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
				if err != nil || !bytes.Contains(b, []byte(planebench.RoleEnv)) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("process %d outlives its parent", pid)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
	}
}

func TestPlaneBadInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--engines=1"}, "--engines 1 with --worker-processes 2 leaves processes without an engine"},
		{[]string{"--frontends=25"}, "--concurrency 24 with --frontends 25"},
		{[]string{"--duration=0", "--request-count=0"}, "--duration 0 and --request-count 0"},
		{[]string{"--baseline-interval=5ms"}, "--baseline-interval 5ms is of the baseline batched, which is not run"},
		{[]string{"--baseline=grpc"}, `"grpc" is not known: use per-response-connection, per-record, batched`},
		{[]string{"--delivery=push"}, `"push" is not known: use pull, sink`},
		{[]string{"--token-bytes=8"}, "--token-bytes 8: out of range: use 32 to"},
		{[]string{"--bind-addr=192.0.2.1:7000"}, "192.0.2.1:7000"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			r := startPlane(t, append([]string{"--artifact-dir=" + t.TempDir()}, c.args...)...)
			if code := r.wait(t); code != cli.ExitFailure {
				t.Errorf("exit code %d, expected %d", code, cli.ExitFailure)
			}
			if !strings.Contains(r.stderr.String(), c.want) {
				t.Errorf("the error does not say %q:\n%s", c.want, r.stderr.String())
			}
		})
	}
}
