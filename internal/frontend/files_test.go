package frontend

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestClientsLeaveFilesToOthers: near the limit of files clients are told so, past that they are closed at once, and
// below it they are served.
func TestClientsLeaveFilesToOthers(t *testing.T) {
	var used uint64
	for used < 150 { // descriptors are the lowest numbers that are free: about as many are open then
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		used = uint64(f.Fd())
	}
	for name := range protocols {
		t.Run(name, func(t *testing.T) {
			var limit atomic.Uint64
			b := serveProtocol(t, &scripted{open: func(context.Context, Call) (Stream, error) {
				return newPlay(step{err: io.EOF}), nil
			}}, name, func(c *Config) {
				c.Files = func() (uint64, bool) { return limit.Load(), limit.Load() > 0 }
			})
			for _, c := range []struct {
				limit  uint64
				status int
			}{{0, 200}, {used + 4096, 200}, {used * 5 / 4, 429}} {
				limit.Store(c.limit)
				b.client.CloseIdleConnections()
				a := b.do("POST", "/v1/chat/completions", chatBody)
				if a.status != c.status || c.status == 429 && (!strings.Contains(a.body, "limit of open files") ||
					a.header.Get("Retry-After") == "") {
					t.Errorf("limit %d, %d used: %d %s", c.limit, used, a.status, a.body)
				}
			}
			b.untilValue(1, "laneway_frontend_refused_connections_total")
			limit.Store(used + 8)
			conn, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) ||
				errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a connection of the last files is not closed: %v", err)
			}
			b.untilValue(2, "laneway_frontend_refused_connections_total")
		})
	}
}
