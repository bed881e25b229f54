package outpath

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/program/uring"
)

// ring sends for many connections with one system call. One goroutine at a time uses it.
type ring struct{ r *uring.Ring }

// newRing fails where the kernel has no io_uring or a sandbox forbids it.
func newRing(entries uint32) (*ring, error) {
	r, err := uring.New(uring.Config{Entries: entries})
	if err != nil {
		return nil, fmt.Errorf("outpath: %w", err)
	}
	return &ring{r}, nil
}

// send adds a send that does not wait; there is room for as many as the ring has entries. p must not be Go's memory,
// and stay as it is until submit has returned.
func (r *ring) send(fd int, p []byte, user uint64) {
	r.r.Add(uring.Send(fd, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, user)) // a ring that was closed says so in submit
}

// submit hands over the n sends that were added and calls done with the result of each. An error means that the ring is
// unusable; sends that done was not called for may have been made or not.
func (r *ring) submit(n int, done func(user uint64, res int32)) error {
	for reaped := 0; reaped < n; {
		if err := r.r.Enter(n-reaped, uring.Forever); err != nil {
			return fmt.Errorf("outpath: %w", err)
		}
		k := r.r.Ready()
		r.r.Take(k, func(c *uring.CQE) { done(c.User, c.Res) })
		reaped += k
	}
	return nil
}

// probe sends a byte to a socket of its own. Kernels before 5.6 have the ring but not this kind of send.
func (r *ring) probe(arena []byte) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("outpath: socketpair: %w", err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	var result int32
	r.send(fds[0], arena[:1], 0)
	if err := r.submit(1, func(_ uint64, res int32) { result = res }); err != nil {
		return err
	}
	if result < 0 {
		return fmt.Errorf("outpath: send by io_uring: %w", unix.Errno(-result))
	}
	return nil
}

func (r *ring) close() error { return r.r.Close() }

// newArena is memory that stays where it is.
func newArena(size int) ([]byte, error) { return uring.Arena(size) }

func freeArena(p []byte) { _ = uring.FreeArena(p) }
