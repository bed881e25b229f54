package outpath

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The part of the kernel's io_uring interface that sends need (linux/io_uring.h).
const (
	offSQ, offCQ, offSQEs = 0, 0x8000000, 0x10000000
	opSend                = 26
	enterGetEvents        = 1
	featSingleMmap        = 1
	setupClamp            = 1 << 4
)

type sqe struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	len, msgFlags uint32
	userData      uint64
	_             [3]uint64
}

type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

type ringParams struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, wqFD uint32
	_                                                                  [3]uint32
	sq                                                                 struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// ring is one io_uring. One goroutine at a time uses it.
type ring struct {
	fd             int
	mem, sqeMem    []byte
	sqTail         *uint32
	sqMask         uint32
	sqArray        []uint32
	sqes           []sqe
	cqHead, cqTail *uint32
	cqMask         uint32
	cqes           []cqe
	tail           uint32 // of the submission queue, not yet published
}

// newRing fails where the kernel has no io_uring or a sandbox forbids it.
func newRing(entries uint32) (*ring, error) {
	var p ringParams
	p.flags = setupClamp
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("outpath: io_uring_setup: %w", errno)
	}
	r := &ring{fd: int(fd)}
	unix.CloseOnExec(r.fd)
	if p.features&featSingleMmap == 0 || p.sqEntries < entries {
		_ = r.close()
		return nil, fmt.Errorf("outpath: this kernel's io_uring is too old: %w", unix.ENOSYS)
	}
	var err error
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	if r.mem, err = unix.Mmap(r.fd, offSQ, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err == nil {
		r.sqeMem, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err != nil {
		_ = r.close()
		return nil, fmt.Errorf("outpath: map the io_uring: %w", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.mem[off])) }
	r.sqTail, r.sqMask = word(p.sq.tail), *word(p.sq.mask)
	r.sqArray = unsafe.Slice(word(p.sq.array), p.sqEntries)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.sqeMem[0])), p.sqEntries)
	r.cqHead, r.cqTail, r.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.mask)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.mem[p.cq.cqes])), p.cqEntries)
	r.tail = atomic.LoadUint32(r.sqTail)
	return r, nil
}

// send adds a send that does not wait. p must not be Go's memory, and stay as it is until submit has returned.
func (r *ring) send(fd int, p []byte, user uint64) {
	i := r.tail & r.sqMask
	r.sqes[i] = sqe{opcode: opSend, fd: int32(fd), addr: uint64(uintptr(unsafe.Pointer(&p[0]))), len: uint32(len(p)),
		msgFlags: unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL, userData: user}
	r.sqArray[i] = i
	r.tail++
}

// submit hands over the n sends that were added and calls done with the result of each. An error means that the ring is unusable; sends
// that done was not called for may have been made or not.
func (r *ring) submit(n int, done func(user uint64, res int32)) error {
	atomic.StoreUint32(r.sqTail, r.tail)
	for left, reaped := n, 0; reaped < n; {
		k, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(left), uintptr(n-reaped), enterGetEvents, 0, 0)
		switch {
		case errno == unix.EINTR || errno == unix.EAGAIN || errno == unix.EBUSY:
		case errno != 0:
			return fmt.Errorf("outpath: io_uring_enter: %w", errno)
		default:
			left -= int(k)
		}
		head, tail := atomic.LoadUint32(r.cqHead), atomic.LoadUint32(r.cqTail)
		for ; head != tail; head++ {
			c := r.cqes[head&r.cqMask]
			done(c.userData, c.res)
			reaped++
		}
		atomic.StoreUint32(r.cqHead, head)
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

func (r *ring) close() error {
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
	}
	if r.sqeMem != nil {
		_ = unix.Munmap(r.sqeMem)
	}
	return unix.Close(r.fd)
}

// newArena is memory that stays where it is.
func newArena(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

func freeArena(p []byte) { _ = unix.Munmap(p) }
