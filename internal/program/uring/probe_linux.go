package uring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// ErrProbe says that the kernel has the calls, and that they do not do what they should.
var ErrProbe = errors.New("io_uring does not work as it should here")

// probeTimeout bounds each wait of a probe. Nothing in it takes longer than a system call.
const probeTimeout = 2 * time.Second

// ProbeReceive says why a ring of this kind cannot be had, or does not receive, nil if it does: it makes one and takes
// bytes over a socket of its own, twice with one operation, and then the end.
func ProbeReceive(cfg Config) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cfg.Entries, cfg.Completions = 4, 8
	r, err := New(cfg)
	if err != nil {
		return err
	}
	b, err := r.Buffers(0, 2, 64)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return errors.Join(os.NewSyscallError("socketpair", err), r.Close(), b.Free())
	}
	over, err := probe(r, b, fds)
	err = errors.Join(err, unix.Close(fds[0]), r.Close())
	if over {
		err = errors.Join(err, b.Free())
	} // else the kernel may still write to the buffers: 4 KiB are given up
	return err
}

// probe closes fds[1]; over says that the kernel is done with the buffers.
func probe(r *Ring, b *Buffers, fds [2]int) (over bool, err error) {
	open := true
	defer func() {
		if open {
			_ = unix.Close(fds[1]) // the probe has failed already
		}
	}()
	if err := r.Enable(); err != nil {
		return true, err
	}
	if !r.Add(Recv(fds[0], 0, 7)) {
		return true, fmt.Errorf("%w: a new ring has no room", ErrProbe)
	}
	for _, text := range []string{"one", "two", ""} {
		if text != "" {
			if _, err := unix.Write(fds[1], []byte(text)); err != nil {
				return false, os.NewSyscallError("write", err)
			}
		} else if open = false; unix.Close(fds[1]) != nil {
			return false, fmt.Errorf("%w: close", ErrProbe)
		}
		c, err := r.next()
		if err != nil {
			return false, err
		}
		over = !c.More()
		if c.Res < 0 {
			return over, fmt.Errorf("receive by io_uring: %w", unix.Errno(-c.Res))
		}
		id, has := c.Buffer()
		if c.User != 7 || int(c.Res) != len(text) || has && !bytes.Equal(b.Bytes(id, int(c.Res)), []byte(text)) ||
			text != "" && !has || over != (text == "") {
			return over, fmt.Errorf("%w: %q came as %d bytes (user data %d, more to come: %t)", ErrProbe, text, c.Res,
				c.User, !over)
		}
		if has {
			b.Put(id)
			b.Publish()
		}
	}
	return over, nil
}

// next waits for one completion.
func (r *Ring) next() (got CQE, err error) {
	for end := time.Now().Add(probeTimeout); r.Ready() == 0; {
		left := time.Until(end)
		if left <= 0 {
			return CQE{}, fmt.Errorf("%w: nothing has come after %v", ErrProbe, probeTimeout)
		}
		if err := r.Enter(1, left); err != nil {
			return CQE{}, err
		}
	}
	r.Take(1, func(c *CQE) { got = *c })
	return got, nil
}
