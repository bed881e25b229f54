//go:build linux

package uring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// allowed skips, and says so, where the kernel or a sandbox does not have it; where everything must be there it fails.
func allowed(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" || !errors.Is(err, syscall.ENOSYS) && !errors.Is(err, os.ErrPermission) &&
		!errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	t.Skipf("io_uring is not tested here: %v", err)
}

// kinds runs a test with a ring whose kernel defers its work, and with one as older kernels have it.
func kinds(t *testing.T, f func(t *testing.T, r *Ring, cfg Config)) {
	for name, cfg := range map[string]Config{
		"deferred": {Entries: 8, Completions: 64, Owned: true}, "interrupting": {Entries: 8, Completions: 64,
			Owned: true, NoDefer: true},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // for the whole test: the ring is this thread's
			defer runtime.UnlockOSThread()
			r, err := New(cfg)
			allowed(t, err)
			defer r.Close()
			f(t, r, cfg)
		})
	}
}

func sockets(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

// await enters until n completions are there.
func await(t *testing.T, r *Ring, n int) (all []CQE) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); len(all) < n; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d completions: %+v", len(all), n, all)
		}
		if err := r.Enter(1, 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		r.Take(r.Ready(), func(c *CQE) { all = append(all, *c) })
	}
	if len(all) > n {
		t.Fatalf("%d completions, want %d: %+v", len(all), n, all)
	}
	return all
}

func TestProbeReceive(t *testing.T) {
	for _, noDefer := range []bool{false, true} {
		allowed(t, ProbeReceive(Config{Owned: true, NoDefer: noDefer}))
	}
}

// TestReceives has one operation take many messages, more than there are buffers, so that these go round the ring many
// times.
func TestReceives(t *testing.T) {
	kinds(t, func(t *testing.T, r *Ring, cfg Config) {
		if r.Deferred() == cfg.NoDefer {
			t.Logf("deferred: %t", r.Deferred()) // a kernel before 6.1
		}
		bufs, err := r.Buffers(3, 4, 16)
		allowed(t, err)
		if err := r.Enable(); err != nil {
			t.Fatal(err)
		}
		a, b := sockets(t)
		r.Add(Recv(a, 3, 42))
		for i := range 300 {
			want := fmt.Appendf(nil, "message %d", i)
			if _, err := unix.Write(b, want); err != nil {
				t.Fatal(err)
			}
			c := await(t, r, 1)[0]
			id, ok := c.Buffer()
			if !ok || c.User != 42 || !c.More() || !bytes.Equal(bufs.Bytes(id, int(c.Res)), want) {
				t.Fatalf("message %d: %+v", i, c)
			}
			bufs.Put(id)
			bufs.Publish()
		}
		// Without a buffer the operation ends, and nothing is lost.
		long := bytes.Repeat([]byte("0123456789abcdef"), 5)
		if _, err := unix.Write(b, long); err != nil {
			t.Fatal(err)
		}
		all := await(t, r, 5)
		if last := all[4]; syscall.Errno(-last.Res) != syscall.ENOBUFS || last.More() {
			t.Fatalf("with no buffer left: %+v", last)
		}
		var got []byte
		for _, c := range all[:4] {
			id, _ := c.Buffer()
			got = append(got, bufs.Bytes(id, int(c.Res))...)
			bufs.Put(id)
		}
		bufs.Publish()
		r.Add(Recv(a, 3, 43))
		c := await(t, r, 1)[0]
		id, _ := c.Buffer()
		if got = append(got, bufs.Bytes(id, int(c.Res))...); !bytes.Equal(got, long) || c.User != 43 {
			t.Fatalf("%q %+v", got, c)
		}
		r.Add(Cancel(43, 44))
		for _, c := range await(t, r, 2) {
			if c.User == 43 && syscall.Errno(-c.Res) != syscall.ECANCELED || c.User == 44 && c.Res != 0 || c.More() {
				t.Errorf("cancelled: %+v", c)
			}
		}
		if err := errors.Join(r.Close(), r.Close(), bufs.Free(), bufs.Free()); err != nil {
			t.Error(err)
		}
		if err := r.Enter(0, 0); !errors.Is(err, syscall.EBADF) || r.Add(SQE{}) {
			t.Errorf("a closed ring takes work: %v", err)
		}
	})
}

// TestQueuesThatAreFull: the submission queue says so, and the kernel keeps the completions that do not fit.
func TestQueuesThatAreFull(t *testing.T) {
	kinds(t, func(t *testing.T, r *Ring, _ Config) {
		if err := r.Enable(); err != nil {
			t.Fatal(err)
		}
		a, _ := sockets(t)
		const n = 300 // over 64 completions
		for i := range n {
			if full := i%8 == 0 && i > 0; r.Unsent() != 8 && full {
				t.Fatalf("%d unsent", r.Unsent())
			} else if full {
				if r.Add(SQE{}) {
					t.Fatal("a ninth of eight")
				}
				if err := r.Enter(0, 0); err != nil || r.Unsent() != 0 {
					t.Fatal(err, r.Unsent())
				}
			}
			if !r.Add(Poll(a, unix.POLLOUT, uint64(i))) { // ready at once
				t.Fatal("no room")
			}
		}
		seen := map[uint64]bool{}
		for _, c := range await(t, r, n) {
			if c.Res <= 0 || c.Res&unix.POLLOUT == 0 || seen[c.User] {
				t.Fatalf("%+v", c)
			}
			seen[c.User] = true
		}
	})
}

// TestEnterWaits: a wait ends when its time is over.
func TestEnterWaits(t *testing.T) {
	kinds(t, func(t *testing.T, r *Ring, _ Config) {
		if err := r.Enable(); err != nil {
			t.Fatal(err)
		}
		a, b := sockets(t)
		r.Add(Poll(a, unix.POLLIN, 1))
		began := time.Now()
		for time.Since(began) < 30*time.Millisecond { // a signal may end one early
			if err := r.Enter(1, 30*time.Millisecond-time.Since(began)); err != nil || r.Ready() != 0 {
				t.Fatal(err, r.Ready())
			}
		}
		if _, err := unix.Write(b, []byte{1}); err != nil {
			t.Fatal(err)
		}
		if c := await(t, r, 1)[0]; c.User != 1 || c.Res&unix.POLLIN == 0 || c.More() {
			t.Errorf("%+v", c)
		}
	})
}
