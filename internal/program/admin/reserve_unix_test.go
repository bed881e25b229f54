//go:build unix

package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// takeFiles opens files until the process may have no more, under a limit that is low for the test.
func takeFiles(t *testing.T) (all []*os.File, giveBack func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = min(old.Cur, 256)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	giveBack = sync.OnceFunc(func() {
		for _, f := range all {
			f.Close()
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(giveBack)
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			return all, giveBack
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
}

// TestAnswersWithoutFiles: the process has no file left, and its health can be asked for, again and again, by others
// and by itself.
func TestAnswersWithoutFiles(t *testing.T) {
	s := start(t, Config{})
	for name, ask := range map[string]func(t *testing.T, last **os.File){
		"others": func(t *testing.T, last **os.File) {
			s.untilFull(t)  // else the end of the connection before may take the file that this one needs
			(*last).Close() // the client is in this process here; what it has is not the server's
			c, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200") {
				t.Errorf("%v %q", err, got)
			}
			c.Close()
			if *last, err = os.Open(os.DevNull); err != nil {
				t.Fatal(err)
			}
		},
		"itself": func(t *testing.T, _ **os.File) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := s.Probe(ctx, "/livez"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.untilFull(t)
			all, giveBack := takeFiles(t)
			for range 3 * reserved {
				if ask(t, &all[len(all)-1]); t.Failed() {
					break
				}
			}
			giveBack()
			if err := s.Probe(t.Context(), "/livez"); err != nil { // the end of a connection has the reserve filled
				t.Error(err)
			}
			s.untilFull(t)
		})
	}
	files := slices.Clone(s.reserve.spare) // what the reserve holds is closed with the server
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, f := range files {
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a file of the reserve is still open: %v", err)
		}
	}
}

// untilFull waits until the last connection has ended.
func (s *Server) untilFull(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s.reserve.mu.Lock()
		n := len(s.reserve.spare)
		s.reserve.mu.Unlock()
		if n == reserved {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the reserve has %d files, expected %d", n, reserved)
		}
	}
}
