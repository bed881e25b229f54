//go:build unix

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// patience bounds every wait of these tests; a loaded machine needs seconds to start eight processes.
const patience = 60 * time.Second

// lines keeps what is written and hands out each line.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
	got chan struct{} // has a value after a write
}

func newLines() *lines { return &lines{got: make(chan struct{}, 1)} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.got <- struct{}{}:
	default:
	}
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// await blocks until text was written.
func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	limit := time.After(patience)
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.got:
		case <-limit:
			t.Fatalf("%q was never written, only:\n%s", text, l)
		}
	}
}

type stage struct {
	cfg  Config
	pids string
	out  *lines
}

// newStage makes a cluster of played programs: 4 workers in 2 processes.
func newStage(t *testing.T, behaviour string) *stage {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, pids := t.TempDir(), t.TempDir()
	for _, name := range append(slices.Clone(siblings), "owner") {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(behaviourEnv, behaviour)
	t.Setenv(pidsEnv, pids)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // a second at the end of each process under the race detector
	t.Setenv("LANEWAY_LANES", "3")          // must not reach the children
	out := newLines()
	return &stage{pids: pids, out: out, cfg: playedConfig(bin, t.TempDir(), out)}
}

func playedConfig(bin, dir string, out *lines) Config {
	return Config{
		Programs: Programs{Frontend: filepath.Join(bin, "frontend"), Worker: filepath.Join(bin, "mockworker"),
			Loadgen: filepath.Join(bin, "loadgen"), Revision: "r1"},
		Arms: []string{"tcp"}, Runs: 1, Workers: 4, Processes: 2, Concurrency: 1, Requests: 1, Warmup: 1, ISL: 1,
		OSL: 2, ITL: time.Millisecond,
		Router: "random", BindAddr: "127.0.0.1:0", ServerEndpoints: 2, PlaneArgs: []string{"--lanes=2"},
		// Played programs talk to nobody, so these are only passed on.
		EtcdEndpoints: redact.URLs("http://etcd:1"), NATSURL: redact.New(playedNATS),
		Dir: dir, Settings: map[string]any{"isl": 1}, Progress: out,
	}
}

// processes are the command lines of all processes that were started, by pid.
func (s *stage) processes(t *testing.T) map[int]string {
	t.Helper()
	entries, err := os.ReadDir(s.pids)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(s.pids, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[pid] = string(b)
	}
	return out
}

// allGone fails when one of at least n processes is still there.
func (s *stage) allGone(t *testing.T, n int) {
	t.Helper()
	all := s.processes(t)
	if len(all) < n {
		t.Errorf("%d processes were started, expected %d or more: %v", len(all), n, all)
	}
	for pid, what := range all {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is left: %s", pid, what)
		}
	}
}

func (s *stage) one(ctx context.Context) (*Outcome, error) {
	return s.cfg.withDefaults().one(ctx, "tcp", "tcp-1")
}

func TestRunGivesReportAndLeavesNothing(t *testing.T) {
	s := newStage(t, "")
	o, err := s.one(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.Name != "tcp-1" || o.Invalid != nil || o.Run.Config["workers"] != 4.0 ||
		o.Run.Config["worker_processes"] != 2.0 || o.Run.Config["response_plane"] != "tcp" ||
		o.Run.Environment.Revision != "r1" {
		t.Errorf("outcome %+v with config %v", o, o.Run.Config)
	}
	var settings []report.Setting
	for name, role := range map[string]string{"frontend": "frontend", "worker-0": "worker"} {
		for _, p := range playedSettings(name) {
			settings = append(settings, report.Setting{Process: name, Role: role, Name: p.Name, Asked: p.Asked,
				InForce: p.InForce})
		}
	}
	byProcess := func(a, b report.Setting) int { return strings.Compare(a.Process, b.Process) }
	slices.SortStableFunc(settings, byProcess)
	if back, err := report.Read(o.Dir); err != nil || !slices.Equal(back.Environment.Settings, settings) {
		t.Errorf("run.json has the settings %+v (%v), /debug/plane %+v", back.Environment.Settings, err, settings)
	}
	if o.Incomplete == nil {
		t.Error("a run directory without figures passed for complete")
	}
	s.allGone(t, 4)
	var workers []string
	for _, line := range s.processes(t) {
		if !strings.Contains(line, "loadgen") && (!strings.Contains(line, "--response-plane=tcp") ||
			!strings.Contains(line, "--lanes=2") || !strings.Contains(line, "--namespace=cluster-")) {
			t.Errorf("a program was started without its plane, settings or namespace: %s", line)
		}
		if name, rest, _ := strings.Cut(line, " "); strings.HasPrefix(name, "worker-") {
			workers = append(workers, name)
			if !strings.Contains(rest, "--num-workers=2") || !strings.Contains(rest, "--worker-id-prefix="+name) {
				t.Errorf("worker process %s was started with %s", name, rest)
			}
		}
	}
	slices.Sort(workers)
	if !slices.Equal(workers, []string{"worker-0", "worker-1"}) {
		t.Errorf("worker processes %v", workers)
	}
	if got := s.out.String(); !strings.Contains(got, "tcp-1: 1/1 done\n") {
		t.Errorf("the load generator's status did not reach the user:\n%s", got)
	}
	for _, name := range []string{"frontend", "worker-0", "worker-1", "loadgen"} {
		if len(tail(filepath.Join(o.Dir, "logs", name+".log"), 1)) == 0 {
			t.Errorf("%s has no log", name)
		}
	}
}

func TestWrongTokensMakeTheRunInvalid(t *testing.T) {
	s := newStage(t, "loadgen=wrong-token")
	o, err := s.one(t.Context())
	var invalid *report.InvalidError
	if err != nil || !errors.As(o.Invalid, &invalid) {
		t.Fatalf("error %v, outcome %+v", err, o)
	}
	s.allGone(t, 4)
}

func TestDeadChildEndsTheRun(t *testing.T) {
	for _, c := range []struct {
		behaviour, name, last string
		started               int
	}{
		{"worker-1=early-death", "worker-1", "worker-1: cannot go on: the port is in use", 2},
		{"frontend=early-death", "frontend", "frontend: cannot go on: the port is in use", 3},
		{"loadgen=kills-frontend", "frontend", "out of memory", 4},
		{"loadgen=fails", "loadgen", "loadgen: no connection", 4},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			s := newStage(t, c.behaviour)
			_, err := s.one(t.Context())
			var died *DiedError
			if !errors.As(err, &died) {
				t.Fatalf("error %v", err)
			}
			if died.Name != c.name || len(died.Last) == 0 || died.Last[len(died.Last)-1] != c.last ||
				!strings.Contains(err.Error(), c.last) {
				t.Errorf("error %v", err)
			}
			s.allGone(t, 1)
		})
	}
}

func TestWorkerThatNeverComesUp(t *testing.T) {
	for _, c := range []struct{ behaviour, what, why string }{
		{"worker-1=mute", "worker-1 did not come up", "does not say where it listens"},
		{"frontend=reaches-3", "worker-1 did not come up",
			"reaches 1 of its 2 workers, 3 of 4 in all; the frontend cannot reach it: no route to it"},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			s := newStage(t, c.behaviour)
			s.cfg.times.start = 3 * time.Second
			_, err := s.one(t.Context())
			var late *NotReadyError
			if !errors.As(err, &late) || !strings.Contains(late.What, c.what) || !strings.Contains(late.Why, c.why) {
				t.Fatalf("error %v", err)
			}
			s.allGone(t, 3)
		})
	}
}

func TestCancelStopsEverything(t *testing.T) {
	s := newStage(t, "loadgen=endless")
	why := errors.New("the user wants it")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := s.one(ctx); ended <- err }()
	s.out.await(t, "1/1 done")
	cancel(why)
	select {
	case err := <-ended:
		if !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the run did not end")
	}
	s.allGone(t, 4)
}

func TestCancelWhileStarting(t *testing.T) {
	s := newStage(t, "frontend=mute")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := s.one(ctx); ended <- err }()
	deadline := time.Now().Add(patience)
	for len(s.processes(t)) < 3 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the run did not end")
	}
	s.allGone(t, 3)
}

func TestChildThatDoesNotStopIsKilledAndNamed(t *testing.T) {
	for behaviour, state := range map[string]string{"worker-0=stubborn": "killed after",
		"worker-0=sour-end": "exit status 1"} {
		t.Run(behaviour, func(t *testing.T) {
			s := newStage(t, behaviour)
			s.cfg.times.stop = 4 * time.Second
			o, err := s.one(t.Context())
			var stop *StopError
			if !errors.As(err, &stop) || stop.Name != "worker-0" || !strings.Contains(stop.State, state) {
				t.Fatalf("error %v", err)
			}
			if o == nil || o.Run == nil {
				t.Error("the report of the run was lost")
			}
			s.allGone(t, 4)
		})
	}
}

// playOwner is a process that makes a run which does not end; its test kills it.
func playOwner() int {
	out := newLines()
	cfg := playedConfig(filepath.Dir(os.Args[0]), os.Args[1], out)
	_, err := cfg.withDefaults().one(context.Background(), "tcp", "tcp-1")
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func TestKilledRunLeavesNoProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can end a child with its parent")
	}
	s := newStage(t, "loadgen=endless")
	owner := exec.Command(filepath.Join(filepath.Dir(s.cfg.Programs.Frontend), "owner"), s.cfg.Dir)
	owner.Env = os.Environ()
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for len(s.processes(t)) < 4 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // killed
	pids := s.processes(t)
	if len(pids) != 4 {
		t.Fatalf("processes %v", pids)
	}
	for pid, what := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d outlives its parent: %s", pid, what)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// alive tells whether a process runs. One whose parent has not waited for it is dead all the same: here the new parent
// may be slow or missing.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
