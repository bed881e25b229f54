package sdnotify

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is what systemd is to its services: a datagram socket.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

func receive(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestStates(t *testing.T) {
	conn := manager(t)
	n, err := Start(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	n.Ready("serving on :8000")
	if got := receive(t, conn); got != "READY=1\nSTATUS=serving on :8000" {
		t.Errorf("%q", got)
	}
	n.Stopping("draining")
	if got := receive(t, conn); got != "STOPPING=1\nSTATUS=draining" {
		t.Errorf("%q", got)
	}
	if err := errors.Join(n.Close(), n.Close()); err != nil {
		t.Error(err)
	}
}

// mark puts a datagram of the test between those of the notifier.
func mark(t *testing.T) {
	t.Helper()
	if _, err := daemon.SdNotify(false, "MARK"); err != nil {
		t.Fatal(err)
	}
}

func TestWatchdogFollowsLife(t *testing.T) {
	conn := manager(t)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(40_000))
	var dead atomic.Bool
	asked := make(chan struct{}, 1000)
	var out lockedBuffer
	n, err := Start(slog.New(slog.NewTextHandler(&out, nil)), func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a check without a deadline could silence the watchdog for ever")
		}
		if dead.Load() {
			asked <- struct{}{}
			return errors.New("no answer")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for range 3 {
		if got := receive(t, conn); got != "WATCHDOG=1" {
			t.Fatalf("%q", got)
		}
	}
	dead.Store(true)
	<-asked // from here on nothing is sent
	mark(t)
	for receive(t, conn) != "MARK" {
	}
	<-asked
	<-asked
	mark(t)
	if got := receive(t, conn); got != "MARK" {
		t.Errorf("a dead process said %q", got)
	}
	if !strings.Contains(out.String(), "no answer") {
		t.Errorf("the log does not say why: %q", out.String())
	}
}

func TestWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	n, err := Start(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	n.Ready("x")
	n.Stopping("x")
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	(*Notifier)(nil).Ready("x")
	if err := (*Notifier)(nil).Close(); err != nil {
		t.Error(err)
	}
}

func TestBadEnvironment(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := Start(nil, nil); err == nil || !strings.Contains(err.Error(), "WATCHDOG_USEC") {
		t.Errorf("%v", err)
	}
}

func TestSocketGone(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	var out lockedBuffer
	n, err := Start(slog.New(slog.NewTextHandler(&out, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	n.Ready("x") // warns, does not fail
	if !strings.Contains(out.String(), "could not be notified") {
		t.Errorf("%q", out.String())
	}
}

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
