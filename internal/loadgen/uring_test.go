//go:build linux

package loadgen

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/outpath/outpathtest"
	"github.com/laneway-ai/laneway/internal/uring"
)

// TestRingsOfOtherKinds has the client on a ring as older kernels have it, and on rings that are too small for their work: what does not fit
// waits in the kernel, and nothing is lost.
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
			run, _ := s.run(t, t.Context(), Config{Client: ClientRing, Concurrency: 300, Requests: 900, OSL: 80, ISL: 2, Loops: 2, Tick: time.Millisecond,
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			if w := run.Raw; w.Requests != 900 || *w.WrongTokens != 0 || w.Chunks != 900*80 || run.Client.Kind != ClientRing {
				t.Errorf("client %s, raw %+v", run.Client.Kind, w)
			}
			allGone(t, s, before)
			if strings.Contains(log.String(), "did not end") {
				t.Error(log.String())
			}
		})
	}
}

// TestRingForbidden runs in a child to which the kernel refuses io_uring: auto is epoll and the report says why; who asks for io_uring is told.
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
	if run.Client.Kind != ClientEpoll || run.Config["client"] != ClientEpoll || !strings.Contains(why, "io_uring_setup: ") {
		t.Errorf("client %s, config %v, because %q", run.Client.Kind, run.Config["client"], why)
	}
	_, err := Run(t.Context(), Config{URL: s.URL, Model: "m", Client: ClientRing, Requests: 1})
	if !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.ENOSYS) || !strings.Contains(err.Error(), "epoll may") {
		t.Errorf("Run: %v", err)
	}
}

// TestAutoIsTheRing: where it works it is taken, and nothing is said of another.
func TestAutoIsTheRing(t *testing.T) {
	needClient(t, ClientRing)
	run, _ := load(t, newServer(t, normal(0, 0)), Config{Requests: 3, OSL: 2, ISL: 2})
	if _, fell := run.Config["client_fallback"]; run.Client.Kind != ClientRing || run.Config["client"] != ClientRing || fell {
		t.Errorf("client %s, config %v", run.Client.Kind, run.Config)
	}
}
