package outpath

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// watched is a connection whose client is watched, and its client.
func watched(t *testing.T) (*Hangups, *Conn, *net.TCPConn) {
	t.Helper()
	h, err := NewHangups()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	server, client := pair(t)
	server.answer.hangups = h
	return h, server, client
}

func (h *Hangups) watching() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// TestHangup: whatever a client has sent before it leaves lies unread, and it is noticed all the same.
func TestHangup(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn) error{
		"close": (*net.TCPConn).Close, "half-close": (*net.TCPConn).CloseWrite,
		"reset": func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
	} {
		for _, unread := range []string{"", "\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
			t.Run(name, func(t *testing.T) {
				h, server, client := watched(t)
				left := make(chan struct{}, 2)
				server.Begin(func() { t.Error("the client has left an answer that had ended") })
				server.End()
				server.Begin(func() { left <- struct{}{} })
				if _, err := io.WriteString(client, unread); err != nil {
					t.Fatal(err)
				}
				if err := leave(client); err != nil {
					t.Fatal(err)
				}
				select {
				case <-left:
				case <-time.After(patience):
					t.Fatalf("not noticed, with %q unread", unread)
				}
				server.End()
				server.Begin(func() { left <- struct{}{} }) // it has left the next one too
				select {
				case <-left:
				default:
					t.Error("the next answer is not told")
				}
				server.End()
				if n := h.watching(); n != 0 {
					t.Errorf("%d connections are watched after their clients have left", n)
				}
			})
		}
	}
}

// TestHangupsForget: a connection that is closed here is watched no more, and the watch ends.
func TestHangupsForget(t *testing.T) {
	h, server, client := watched(t)
	server.Begin(func() { t.Error("left") })
	server.End()
	if n := h.watching(); n != 1 {
		t.Fatalf("%d connections are watched", n)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if n := h.watching(); n != 0 {
		t.Errorf("%d connections are watched after their end", n)
	}
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("an answer that had ended: %v, expected EOF", err)
	}
	_ = h.Close()
	_ = h.Close()
	other, _ := pair(t)
	other.answer.hangups = h
	other.Begin(func() { t.Error("left") })
	if n := h.watching(); n != 0 {
		t.Errorf("%d connections are watched by what was closed", n)
	}
	(*Hangups)(nil).Close()
}

// TestCloseDuringAnAnswerIsAReset: what was sent of it must not look like all.
func TestCloseDuringAnAnswerIsAReset(t *testing.T) {
	server, client := pair(t)
	server.Begin(func() {})
	if _, err := io.WriteString(server, "half of it"); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	_ = client.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v, expected a reset", err)
	}
}
