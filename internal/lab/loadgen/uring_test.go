//go:build linux

package loadgen

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/frontend/outpath/outpathtest"
	"github.com/laneway-ai/laneway/internal/program/redact"
	"github.com/laneway-ai/laneway/internal/program/uring"
)

// TestRingsOfOtherKinds has the client on a ring as older kernels have it, and on rings that are too small for their
// work: what does not fit waits in the kernel, and nothing is lost.
func TestRingsOfOtherKinds(t *testing.T) {
	needClient(t, ClientRing)
	config, buffers := ringConfig, ringBuffers
	defer func() { ringConfig, ringBuffers = config, buffers }()
	for name, c := range map[string]struct {
		cfg     uring.Config
		buffers int
	}{
		"interrupting":           {uring.Config{Entries: 512, Completions: 4096, Owned: true, NoDefer: true}, 512},
		"small queues":           {uring.Config{Entries: 4, Completions: 8, Owned: true}, 512},
		"two buffers":            {uring.Config{Entries: 512, Completions: 4096, Owned: true}, 2},
		"small and interrupting": {uring.Config{Entries: 4, Completions: 8, Owned: true, NoDefer: true}, 2},
		"small, and one buffer":  {uring.Config{Entries: 4, Completions: 8, Owned: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ringConfig, ringBuffers = c.cfg, c.buffers
			var log bytes.Buffer
			s := newWireServer(t, func(conn *net.TCPConn, id string, osl int) error {
				_, err := io.WriteString(conn, answer(id, osl))
				return err
			})
			before := files()
			run, _ := s.run(t, t.Context(), Config{Client: ClientRing, Concurrency: 300, Requests: 900, OSL: 80, ISL: 2,
				Loops: 2, Tick: time.Millisecond,
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			if w := run.Raw; w.Requests != 900 || *w.WrongTokens != 0 || w.Chunks != 900*80 ||
				run.Client.Kind != ClientRing {
				t.Errorf("client %s, raw %+v", run.Client.Kind, w)
			}
			allGone(t, s, before)
			if strings.Contains(log.String(), "did not end") {
				t.Error(log.String())
			}
		})
	}
}

// TestRingForbidden runs in a child to which the kernel refuses io_uring: auto is epoll and the report says why; who
// asks for io_uring is told.
func TestRingForbidden(t *testing.T) {
	const child = "LANEWAY_TEST_SANDBOX"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRingForbidden$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := outpathtest.ForbidRings(); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, normal(0, 0))
	run, _ := load(t, s, Config{Requests: 3, OSL: 2, ISL: 2})
	why, _ := run.Config["client_fallback"].(string)
	if run.Client.Kind != ClientEpoll || run.Config["client"] != ClientEpoll ||
		!strings.Contains(why, "io_uring_setup: ") {
		t.Errorf("client %s, config %v, because %q", run.Client.Kind, run.Config["client"], why)
	}
	_, err := Run(t.Context(), Config{URL: redact.New(s.URL), Model: "m", Client: ClientRing, Requests: 1})
	if !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.ENOSYS) || !strings.Contains(err.Error(),
		"epoll may") {
		t.Errorf("Run: %v", err)
	}
}

// TestAutoIsTheRing: where it works it is taken, and nothing is said of another.
func TestAutoIsTheRing(t *testing.T) {
	needClient(t, ClientRing)
	run, _ := load(t, newServer(t, normal(0, 0)), Config{Requests: 3, OSL: 2, ISL: 2})
	if _, fell := run.Config["client_fallback"]; run.Client.Kind != ClientRing || run.Config["client"] != ClientRing ||
		fell {
		t.Errorf("client %s, config %v", run.Client.Kind, run.Config)
	}
}

// TestDropWaitsForTheKernel: a connection with an operation that has not reached the kernel keeps its number, because
// the operation names it by that; one without is closed at once. What comes for a connection that is gone is nobody's,
// and its buffer is free again.
func TestDropWaitsForTheKernel(t *testing.T) {
	needClient(t, ClientRing)
	l, err := newLoop(engineOf("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:1"), ClientRing)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	p := l.io.(*ring)
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
	closed := func(fd int) bool {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err == unix.EBADF
	}
	for round := range 3 * ringBuffers {
		var fds [2][2]int
		for i := range fds {
			if fds[i], err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
				0); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(fds[i][1], []byte("for a connection that is gone")); err != nil {
				t.Fatal(err)
			}
		}
		s := &slot{number: 0, gen: int32(round), state: slotOpen}
		s.x.e, s.x.l = l.e, l.l
		l.slots = []*slot{s}
		// The kernel has taken nothing of the first when it is dropped.
		s.fd = fds[0][0]
		_ = p.open(s)
		p.drop(s)
		if closed(fds[0][0]) {
			t.Fatal("closed while a receive that names it is on its way")
		}
		s.fd = -1
		if _, err := p.wait(0); err != nil || !closed(fds[0][0]) {
			t.Fatalf("%v; still open: %t", err, !closed(fds[0][0]))
		}
		p.serve()
		// The kernel has taken all of the second.
		s.fd, s.gen = fds[1][0], s.gen+1<<20
		_ = p.open(s)
		if _, err := p.wait(0); err != nil {
			t.Fatal(err)
		}
		p.drop(s)
		if !closed(fds[1][0]) {
			t.Fatal("not closed, though nothing is on its way")
		}
		s.fd = -1
		p.serve()
		for i := range fds {
			_ = unix.Close(fds[i][1])
		}
	}
	// All buffers are free again: as many receives find one.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	filled, take := 0, p.take
	p.take = func(c *uring.CQE) {
		if !c.More() {
			p.pending--
		}
		if _, ok := c.Buffer(); ok {
			filled++
		}
	}
	p.push(uring.Recv(fds[0], ringGroup, user(opCancel, nil)))
	for n := range ringBuffers {
		if _, err := unix.Write(fds[1], []byte{1}); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); filled == n && time.Now().Before(end); p.serve() {
			if _, err := p.wait(time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	if filled != ringBuffers {
		t.Errorf("%d of %d buffers are free", filled, ringBuffers)
	}
	p.take = take
	_ = unix.Close(fds[1]) // the receive sees the end
	p.end()
	_ = unix.Close(fds[0])
	if p.pending != 0 || len(p.closing) != 0 || len(p.queue) != 0 {
		t.Errorf("%d operations, %d to close, %d waiting at the end", p.pending, len(p.closing), len(p.queue))
	}
}
