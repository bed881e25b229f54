package netns

import (
	"bytes"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// stage runs the command cluster with a mark in the environment of all its processes and a directory of their own for
// temporary files, so that what is left of them can be found.
type stage struct {
	program, mark, tmp, runs string
	interfaces               []string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	need(t)
	programs(t) // so that they are in the cache, and a run starts at once
	s := &stage{program: filepath.Join(t.TempDir(), "cluster"), mark: "CONFORMANCE_MARK=" + rand.Text(),
		tmp: t.TempDir(), runs: t.TempDir(), interfaces: interfaces(t)}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", s.program, "./cmd/cluster")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return s
}

// root is the repository's.
const root = "../../.."

// command is a small run in namespaces.
func (s *stage) command(args ...string) (*exec.Cmd, *output) {
	cmd := exec.Command(s.program, append([]string{"--netns", "--workers=4", "--processes=2", "--concurrency=16",
		"--request-count=64", "--isl=16", "--osl=16",
		"--inter-token-latency=20ms", "--steady-after=200ms", "--lanes=2", "--artifact-dir=" + s.runs}, args...)...)
	cmd.Dir = root
	cmd.Env = append(cli.WithoutSettings(os.Environ()), s.mark, "TMPDIR="+s.tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// processes are those with the mark.
func (s *stage) processes(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(b, []byte(s.mark)) {
			cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			out = append(out, strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return out
}

// remains waits for the end of processes that have been told to end, then says what is left but namespaces.
func (s *stage) remains(t *testing.T) {
	t.Helper()
	await(t, patience, "all processes to end", func() bool { return len(s.processes(t)) == 0 })
	await(t, patience, "temporary files to go", func() bool {
		left, err := os.ReadDir(s.tmp)
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
	if after := interfaces(t); !slices.Equal(s.interfaces, after) {
		t.Errorf("the host had the interfaces %v and has %v", s.interfaces, after)
	}
}

// of are the names of namespaces that a process has made.
func of(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	return names(t, "laneway-"+strconv.Itoa(cmd.Process.Pid)+"-")
}

func TestCluster(t *testing.T) {
	s := newStage(t)
	t.Run("in namespaces", s.inNamespaces)
	t.Run("interrupted", s.interrupted)
	t.Run("killed", s.killed)
}

func (s *stage) inNamespaces(t *testing.T) {
	for _, c := range []struct{ planes, bind string }{{"tcp,tls,quic", ":0"}, {"quic,tcp", "[::]:7000"}} {
		t.Run(c.planes+" "+c.bind, func(t *testing.T) {
			before, ok1 := procstat.ReadUDP(procstat.Self)
			stop := overrun(t)
			cmd, out := s.command("--response-plane="+c.planes, "--bind-addr="+c.bind)
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			stop()
			after, ok2 := procstat.ReadUDP(procstat.Self)
			if n := after.Sub(before).RcvbufErrors; !ok1 || !ok2 || n < 1000 {
				t.Fatalf("the host's network dropped %d datagrams, so this shows nothing", n)
			}
			s.remains(t)
			if left := of(t, cmd); len(left) > 0 {
				t.Errorf("namespaces are left: %v", left)
			}
			for plane := range strings.SplitSeq(c.planes, ",") {
				s.check(t, plane)
			}
			if err := os.RemoveAll(s.runs); err != nil {
				t.Error(err)
			}
		})
	}
}

// check looks at the report of a run.
func (s *stage) check(t *testing.T, plane string) {
	t.Helper()
	dir := filepath.Join(s.runs, plane+"-1")
	if err := report.CheckCluster(dir); err != nil {
		t.Error(err)
	}
	r, err := report.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Raw.Requests != 64 || r.Raw.Errors != 0 || r.Raw.WrongTokens == nil || *r.Raw.WrongTokens != 0 {
		t.Errorf("%s: %d requests, %d errors", plane, r.Raw.Requests, r.Raw.Errors)
	}
	if !r.Environment.Netns || r.Environment.MTU == nil || *r.Environment.MTU != 1500 || r.Config["netns"] != true {
		t.Errorf("%s: netns %v (config %v), MTU %v", plane, r.Environment.Netns, r.Config["netns"], r.Environment.MTU)
	}
	if plane != "quic" {
		return
	}
	u := r.UDP
	if u == nil || u.RcvbufErrors == nil || u.SocketDrops == nil || *u.RcvbufErrors != *u.SocketDrops ||
		*u.RcvbufErrors > 100 {
		t.Errorf("the drops of the frontend's namespace are not those of its own sockets: %+v", u)
	}
}

// overrun makes the host's own network drop datagrams until it is stopped: a socket that nobody reads.
func overrun(t *testing.T) (stop func()) {
	t.Helper()
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp", l.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	end, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			for range 10 {
				_, _ = c.Write(make([]byte, 1000))
			}
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-done
		c.Close()
		l.Close()
	}
}

// begin starts a run without end and waits until its load flows.
func (s *stage) begin(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd, out := s.command("--request-count=1000000", "--response-plane=quic")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // when the test failed before it ended
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output of cluster:\n%s", out)
		}
	})
	await(t, patience, "the load to flow", func() bool { return strings.Contains(out.String(), "/1000000 done") })
	if n := len(of(t, cmd)); n != 5 {
		t.Errorf("%d namespaces: %v", n, of(t, cmd))
	}
	return cmd
}

// interrupted: a run that is stopped by a signal leaves nothing.
func (s *stage) interrupted(t *testing.T) {
	cmd := s.begin(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != cli.ExitFailure {
		t.Errorf("ended with %v", err)
	}
	s.remains(t)
	if left := of(t, cmd); len(left) > 0 {
		t.Errorf("namespaces are left: %v", left)
	}
}

// killed: a run that is killed leaves its namespaces and nothing else, and the next run removes them.
func (s *stage) killed(t *testing.T) {
	cmd := s.begin(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	s.remains(t)
	if len(of(t, cmd)) == 0 {
		t.Fatal("the killed run left no namespaces, so this shows nothing")
	}
	next, out := s.command("--response-plane=tcp")
	if err := next.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out.String(), "removed 5 network namespaces") {
		t.Errorf("the next run does not say that it has removed 5 namespaces:\n%s", out)
	}
	s.remains(t)
	if left := append(of(t, cmd), of(t, next)...); len(left) > 0 {
		t.Errorf("namespaces are left: %v", left)
	}
}
