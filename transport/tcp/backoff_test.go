package tcp

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoffDoublesUpToASecond(t *testing.T) {
	var b backoff
	for episode := range 2 {
		want := backoffFirst
		for i := range 12 {
			wait, first := b.next()
			if wait != want || first != (i == 0) {
				t.Errorf("episode %d, error %d: wait %v (first %v), want %v", episode, i, wait, first, want)
			}
			want = min(2*want, backoffMost)
		}
		if !b.over() || b.over() {
			t.Error("an episode ends once")
		}
	}
}

// starved is an accepter that never gets a descriptor.
type starved struct {
	err   error
	calls atomic.Int64
}

func (s *starved) AcceptTCP() (*net.TCPConn, error) {
	s.calls.Add(1)
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: s.err}
}

func (s *starved) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// TestAcceptErrorsMakeNoStorm is an hour without descriptors or buffers: an error a second, one line of log.
func TestAcceptErrorsMakeNoStorm(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		t.Run(errno.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				tr, err := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				ln := &listener{t: tr, ready: make(chan *conn)}
				ln.ctx, ln.cancel = context.WithCancel(tr.ctx)
				s := &starved{err: errno}
				ln.wg.Go(func() { ln.loop(s) })
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := s.calls.Load(); n < 3595 || n > 3620 {
					t.Errorf("%d accepts in an hour, want about one a second", n)
				}
				if got := tr.Counters().AcceptErrors; int64(got) != s.calls.Load() {
					t.Errorf("%d errors are counted of %d", got, s.calls.Load())
				}
				if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(),
					"cannot accept") || !strings.Contains(log.String(), "ulimit") {
					t.Errorf("%d lines of log: %s", lines, log.String())
				}
				if err := ln.Close(); err != nil {
					t.Error(err)
				}
				if err := tr.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
