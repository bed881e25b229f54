package base

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

func TestBindRange(t *testing.T) {
	got, err := BindRange("[::1]:8000", 3)
	if err != nil || strings.Join(got, " ") != "[::1]:8000 [::1]:8001 [::1]:8002" {
		t.Errorf("%v, %v", got, err)
	}
	got, err = BindRange("host:0", 2)
	if err != nil || strings.Join(got, " ") != "host:0 host:0" {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []struct {
		bind string
		n    int
		want string
	}{
		{"host:1", 0, "0 endpoints"}, {"host:1", 65, "1 to 64"}, {"host", 1, "host:port"},
		{"host:http", 1, `port "http"`},
		{"host:65536", 1, "0 to 65535"}, {"host:65534", 3, "65534 to 65536"}, {"host:-1", 1, `"-1"`},
	} {
		if _, err := BindRange(c.bind, c.n); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %d: %v, want %q in it", c.bind, c.n, err, c.want)
		}
	}
}

func TestNetwork(t *testing.T) {
	for addr, want := range map[string]string{"0.0.0.0:1": "udp4", "127.0.0.1:0": "udp4", "[::]:1": "udp",
		"host:1": "udp", ":1": "udp"} {
		if got := Network("udp", addr); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func TestGate(t *testing.T) {
	var g Gate
	if err := g.Enter(); err != nil {
		t.Fatal(err)
	}
	if now, err := g.Half(); now || err != nil {
		t.Errorf("a half close in mid-write: %v, %v", now, err)
	}
	if !g.Leave() {
		t.Error("the write does not end the stream")
	}
	if err := g.Enter(); !errors.Is(err, ErrWriteClosed) {
		t.Errorf("a write after it: %v", err)
	}
	if now, err := g.Half(); now || err != nil {
		t.Errorf("a second half close: %v, %v", now, err)
	}
	if !g.Close() || g.Close() || !g.Closed() {
		t.Error("only the first Close is the first")
	}
	if err := g.Enter(); err != transport.ErrClosed {
		t.Errorf("a write after Close: %v", err)
	}
	if _, err := g.Half(); err != transport.ErrClosed {
		t.Errorf("a half close after Close: %v", err)
	}
	var idle Gate
	if now, err := idle.Half(); !now || err != nil {
		t.Errorf("a half close of an idle lane: %v, %v", now, err)
	}
}

func TestDialFailureSaysWhatHappened(t *testing.T) {
	f := DialFailure{Plane: "quic", Request: transport.DialRequest{Address: "a:1", Lane: 3}, Limit: 5 * time.Second,
		Silence: ", or blocked"}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	wrong := &transport.IdentityError{Address: "a:1"}
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for name, c := range map[string]struct {
		ctx    context.Context
		closed bool
		err    error
		is     error
		says   string
	}{
		"wrong node": {t.Context(), true, fmt.Errorf("handshake: %w", wrong), wrong, ""},
		"closed":     {t.Context(), true, context.Canceled, transport.ErrClosed, ""},
		"cancelled": {cancelled, false, errors.New("x"), context.Canceled,
			"dial quic lane 3 at a:1: context canceled"},
		"too late": {late, false, os.ErrDeadlineExceeded, context.DeadlineExceeded, "dial quic lane 3 at a:1: "},
		"own bound": {t.Context(), false, os.ErrDeadlineExceeded, context.DeadlineExceeded,
			"no answer within 5s, or blocked: "},
		"nobody there": {t.Context(), false, refused, syscall.ECONNREFUSED,
			"dial quic lane 3 at a:1: connect: connection refused"},
	} {
		f.Closed, f.Err = c.closed, c.err
		if err := f.Error(c.ctx); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
