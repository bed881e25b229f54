//go:build unix

package devserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// orphanEnv makes the test binary start servers and wait to be killed.
const orphanEnv = "LANEWAY_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if how := os.Getenv(orphanEnv); how != "" {
		orphanMaker(how)
	}
	goleak.VerifyTestMain(m)
}

// mustBuild builds the binary with a line on stderr, since it may take minutes.
func mustBuild(t *testing.T) string {
	t.Helper()
	path, err := Build(t.Context(), func(s string) { fmt.Fprintln(os.Stderr, s) })
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func dial(addr string) error {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

func hostOf(t *testing.T, s *Server) string {
	t.Helper()
	text := s.URL()
	if s.Kind() == "etcd" {
		text = s.Endpoints()[0]
	}
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func TestBuildOnceForParallelCallers(t *testing.T) {
	first := mustBuild(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := Build(t.Context(), func(s string) { t.Errorf("said %q although the binary is there", s) })
			if err != nil || got != first {
				t.Errorf("Build = %q, %v; want %q", got, err, first)
			}
		})
	}
	wg.Wait()
}

func TestSourceKeyFollowsTheModule(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	key := func() string {
		k, err := sourceKey(dir)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if _, err := sourceKey(dir); err == nil {
		t.Error("an empty folder has a key")
	}
	write("main.go", "package main")
	write("go.mod", "module x")
	a := key()
	write("README.md", "text")
	if key() != a {
		t.Error("a text file changes the key")
	}
	write("main.go", "package main // changed")
	if key() == a {
		t.Error("a changed source file keeps the key")
	}
}

func TestFindSourceOutsideACheckout(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(BinaryEnv, "")
	_, err := Build(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), BinaryEnv) {
		t.Errorf("err = %v, want one that names %s", err, BinaryEnv)
	}
}

func TestLifeOfServers(t *testing.T) {
	bin := mustBuild(t)
	for kind, start := range map[string]func(context.Context, Options) (*Server,
		error){"etcd": StartEtcd, "nats": StartNATS} {
		t.Run(kind, func(t *testing.T) {
			begin := time.Now()
			s, err := start(t.Context(), Options{Binary: bin})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s took clients after %s", kind, time.Since(begin))
			addr, pid := hostOf(t, s), s.PID()
			if err := dial(addr); err != nil {
				t.Fatal(err)
			}

			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
			waitState(t, pid, "T")
			if err := s.Resume(); err != nil {
				t.Fatal(err)
			}
			waitState(t, pid, "SRD")

			s.Kill()
			<-s.Done()
			if err := dial(addr); err == nil {
				t.Fatal("a killed server still takes connections")
			}
			if err := s.Pause(); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("pausing a dead server: %v", err)
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if hostOf(t, s) != addr || s.PID() == pid {
				t.Errorf("after Restart: address %s (was %s), pid %d (was %d)", hostOf(t, s), addr, s.PID(), pid)
			}
			if err := s.Restart(t.Context()); err != nil { // of a running one: graceful
				t.Fatal(err)
			}
			if err := dial(addr); err != nil {
				t.Fatal(err)
			}

			// A paused one must stop gracefully as well.
			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s.dir != "" {
				if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
					t.Errorf("the data directory is still there: %v", err)
				}
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Errorf("second Stop: %v", err)
			}
			if err := s.Restart(t.Context()); err == nil {
				t.Error("Restart after Stop succeeded")
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	bin := mustBuild(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for i := range 6 {
		wg.Go(func() {
			start := StartEtcd
			if i%2 == 1 {
				start = StartNATS
			}
			s, err := start(t.Context(), Options{Binary: bin})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if a := hostOf(t, s); seen[a] {
				t.Errorf("%s was given out twice", a)
			} else {
				seen[a] = true
			}
			mu.Unlock()
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestAddressInUse(t *testing.T) {
	bin := mustBuild(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, start := range []func(context.Context, Options) (*Server, error){StartEtcd, StartNATS} {
		_, err := start(t.Context(), Options{Binary: bin, Addr: l.Addr().String()})
		if !errors.Is(err, errInUse) || !strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("err = %v, want one that says that %s is in use", err, l.Addr())
		}
	}
}

// orphan is what orphanMaker says about a server.
type orphan struct {
	Addr, Dir string
	PID       int
}

// orphanMaker starts servers and waits to be killed; how "paused" pauses them first.
func orphanMaker(how string) {
	for _, start := range []func(context.Context, Options) (*Server, error){StartEtcd, StartNATS} {
		s, err := start(context.Background(), Options{})
		if err == nil && how == "paused" {
			err = s.Pause()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = json.NewEncoder(os.Stdout).Encode(orphan{Addr: s.addr, Dir: s.dir, PID: s.PID()})
	}
	select {}
}

func TestServersEndWithTheirParent(t *testing.T) {
	bin := mustBuild(t)
	// "hung up": only the signal that a stopped process group gets when it loses its last parent; standard input stays
	// open. It may be seen before the end of standard input and has to mean the same.
	for _, how := range []string{"running", "paused", "hung up"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), orphanEnv+"="+how, BinaryEnv+"="+bin)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var orphans []orphan
			for in := bufio.NewScanner(out); len(orphans) < 2 && in.Scan(); {
				var o orphan
				if err := json.Unmarshal(in.Bytes(), &o); err != nil {
					t.Fatalf("%q: %v", in.Text(), err)
				}
				orphans = append(orphans, o)
			}
			kill := sync.OnceFunc(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait() // killed
			})
			defer kill()
			if how == "hung up" {
				for _, o := range orphans {
					if err := syscall.Kill(o.PID, syscall.SIGHUP); err != nil {
						t.Error(err)
					}
				}
			} else {
				kill()
			}
			if len(orphans) != 2 {
				t.Fatalf("the child started %d servers, want 2", len(orphans))
			}
			for _, o := range orphans {
				poll(t, fmt.Sprintf("process %d to end", o.PID), func() bool { return ended(o.PID) })
				if o.Dir != "" {
					if _, err := os.Stat(o.Dir); !os.IsNotExist(err) {
						t.Errorf("%s is left behind: %v", o.Dir, err)
					}
				}
			}
		})
	}
}

// TestLogThatNobodyReads: a parent that died reads no log. The server lives until it is told to end, and cleans up.
func TestLogThatNobodyReads(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(mustBuild(t), "etcd", "--log-level=debug")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	parent, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log.Close()
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		t.Errorf("no line that it is ready: %q, %v", line, err)
	}
	parent.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// ended says whether the process is gone, or a zombie that a container's first process does not collect.
func ended(pid int) bool {
	return syscall.Kill(pid, 0) != nil || procState(pid) == "Z"
}

// procState is the state letter in /proc/PID/stat, empty when there is none.
func procState(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// waitState waits until the process is in one of the states of /proc/PID/stat. Only Linux has that.
func waitState(t *testing.T, pid int, states string) {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return
	}
	poll(t, "process state "+states, func() bool {
		state := procState(pid)
		return state != "" && strings.Contains(states, state)
	})
}

func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
