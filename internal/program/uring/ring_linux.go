package uring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Config is how a ring is made.
type Config struct {
	// Entries is the size of the submission queue, a power of two.
	Entries uint32
	// Completions is the size of the completion queue; 0 = twice Entries. The kernel keeps what does not fit.
	Completions uint32
	// Owned says that only the thread that calls Enable uses the ring from then on: keep it with runtime.LockOSThread.
	// The kernel then does the work of completions only in Enter, and does not interrupt the thread for it
	// (DEFER_TASKRUN, Linux 6.1); older kernels do it as always.
	Owned bool
	// NoDefer leaves the last out, for tests of what older kernels do.
	NoDefer bool
}

// Ring is one io_uring. One goroutine at a time uses it.
type Ring struct {
	fd       int
	mem      []byte
	sqeMem   []byte
	sqHead   *uint32
	sqTail   *uint32
	sqMask   uint32
	sqes     []SQE
	cqHead   *uint32
	cqTail   *uint32
	cqMask   uint32
	cqes     []CQE
	tail     uint32 // of the submission queue, not yet published
	deferred bool
	disabled bool

	// What the kernel reads during Enter. They are part of the Ring because that is on the heap, where nothing moves.
	arg waitArg
	ts  unix.Timespec
}

// New makes a ring. It fails where the kernel has no io_uring, or too old a one, or a sandbox forbids it.
func New(cfg Config) (*Ring, error) {
	base := uint32(setupClamp)
	if cfg.Completions > 0 {
		base |= setupCQSize
	}
	tries := []uint32{base}
	if cfg.Owned {
		base |= setupSubmitAll
		tries = []uint32{base | setupCoopTaskrun, base}
		if !cfg.NoDefer {
			tries = append([]uint32{base | setupSingleIssuer | setupDeferTaskrun | setupRingDisabled}, tries...)
		}
	}
	var p params
	var errno unix.Errno
	var fd uintptr
	for _, flags := range tries {
		p = params{flags: flags, cqEntries: cfg.Completions}
		if fd, _, errno = unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(cfg.Entries), uintptr(unsafe.Pointer(&p)),
			0); errno != unix.EINVAL {
			break
		}
	}
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &Ring{fd: int(fd), deferred: p.flags&setupDeferTaskrun != 0, disabled: p.flags&setupRingDisabled != 0}
	unix.CloseOnExec(r.fd)
	need := uint32(featSingleMmap | featNoDrop)
	if cfg.Owned {
		need |= featExtArg // waits with a timeout
	}
	if p.features&need != need || p.sqEntries < cfg.Entries {
		return nil, errors.Join(fmt.Errorf("this kernel's io_uring is too old: %w", unix.ENOSYS), r.Close())
	}
	if err := r.mmap(&p); err != nil {
		return nil, errors.Join(fmt.Errorf("map the io_uring: %w", err), r.Close())
	}
	return r, nil
}

func (r *Ring) mmap(p *params) (err error) {
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(CQE{})))
	if r.mem, err = unix.Mmap(r.fd, offSQ, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return err
	}
	size = p.sqEntries * uint32(unsafe.Sizeof(SQE{}))
	if r.sqeMem, err = unix.Mmap(r.fd, offSQEs, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return err
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.mem[off])) }
	r.sqHead, r.sqTail, r.sqMask = word(p.sq.head), word(p.sq.tail), *word(p.sq.mask)
	r.sqes = unsafe.Slice((*SQE)(unsafe.Pointer(&r.sqeMem[0])), p.sqEntries)
	r.cqHead, r.cqTail, r.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.mask)
	r.cqes = unsafe.Slice((*CQE)(unsafe.Pointer(&r.mem[p.cq.cqes])), p.cqEntries)
	for i, array := uint32(0), unsafe.Slice(word(p.sq.array), p.sqEntries); i < p.sqEntries; i++ {
		array[i] = i // entry i of the queue is always SQE i
	}
	r.tail = atomic.LoadUint32(r.sqTail)
	return nil
}

// Deferred says whether completions are worked on in Enter alone. Then one Enter does about DeferredBatch of them, more
// when it is told to wait for more.
func (r *Ring) Deferred() bool { return r.deferred }

// DeferredBatch is how many completions the kernel works on in one Enter of a deferred ring that waits for no more.
// When so many have come back there may be more: Enter again before anything else.
const DeferredBatch = 20

// Enable makes the calling thread the one that uses the ring, when it is Owned. Before, nothing but Buffers may be
// called.
func (r *Ring) Enable() error {
	if !r.disabled {
		return nil
	}
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerEnableRings, 0, 0, 0,
		0); errno != 0 {
		return fmt.Errorf("io_uring_register, enable: %w", errno)
	}
	r.disabled = false
	return nil
}

// Add puts an operation into the submission queue, false when it is full (Enter makes room) or the ring was closed.
func (r *Ring) Add(s SQE) bool {
	if r.fd < 0 || r.tail-atomic.LoadUint32(r.sqHead) == uint32(len(r.sqes)) {
		return false
	}
	r.sqes[r.tail&r.sqMask] = s
	r.tail++
	return true
}

// Unsent is how many operations were added that the kernel has not taken yet. Until it has, the file descriptors that
// they name must stay as they are.
func (r *Ring) Unsent() int { return int(r.tail - atomic.LoadUint32(r.sqHead)) }

// Forever has Enter wait without a limit.
const Forever = time.Duration(-1)

// Submit gives the kernel what was added, or a part of it: look at Unsent. Completions are not worked on. An error
// means that the ring is unusable.
func (r *Ring) Submit() error { return r.enter(0, 0, 0, 0) }

// Enter gives the kernel what was added, and then waits until at least so many completions are there, or for so long.
// It may return early, without an error, after a signal or when the kernel is short of memory: look at Unsent and what
// is there. An error means that the ring is unusable.
func (r *Ring) Enter(least int, wait time.Duration) error {
	flags, arg, size := uintptr(enterGetEvents), uintptr(0), uintptr(0)
	if least > 0 && wait >= 0 {
		r.ts = unix.NsecToTimespec(int64(wait))
		r.arg = waitArg{timespec: uint64(uintptr(unsafe.Pointer(&r.ts)))}
		flags |= enterExtArg
		arg, size = uintptr(unsafe.Pointer(&r.arg)), unsafe.Sizeof(r.arg)
	}
	return r.enter(least, flags, arg, size)
}

func (r *Ring) enter(least int, flags, arg, size uintptr) error {
	if r.fd < 0 {
		return fmt.Errorf("io_uring_enter: %w", unix.EBADF)
	}
	atomic.StoreUint32(r.sqTail, r.tail) // after the SQEs themselves were written
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.Unsent()), uintptr(least), flags,
		arg, size)
	switch errno {
	case 0, unix.EINTR, unix.ETIME, unix.EAGAIN, unix.EBUSY:
		return nil
	}
	return fmt.Errorf("io_uring_enter: %w", errno)
}

// Ready is how many completions are there, at this moment.
func (r *Ring) Ready() int { return int(atomic.LoadUint32(r.cqTail) - atomic.LoadUint32(r.cqHead)) }

// Take calls f with each of the next n completions, which must be Ready, and then frees their places. f must not call
// Take.
func (r *Ring) Take(n int, f func(*CQE)) {
	head := atomic.LoadUint32(r.cqHead)
	for range n {
		f(&r.cqes[head&r.cqMask])
		head++
	}
	atomic.StoreUint32(r.cqHead, head) // after the CQEs themselves were read
}

// Close gives the ring back. What is still asked for ends in the kernel's own time, so buffers that it could write to
// must not be freed then.
func (r *Ring) Close() error {
	var errs []error
	for _, m := range []*[]byte{&r.mem, &r.sqeMem} {
		if *m != nil {
			errs = append(errs, unix.Munmap(*m))
			*m = nil
		}
	}
	if r.fd >= 0 {
		errs = append(errs, unix.Close(r.fd))
		r.fd = -1
	}
	return errors.Join(errs...)
}
