package loadgen

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epoll is the poller that is told which connections have something, and then reads each.
type epoll struct {
	l        *loop
	fd       int
	events   []unix.EpollEvent
	n        int
	noPwait2 bool // the kernel does not know epoll_pwait2
}

// stopSlot is the slot number of the loop's stopFD in epoll's events.
const stopSlot = -1

func newEpoll(l *loop) (*epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: stopSlot}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, l.stopFD, &ev); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	return &epoll{l: l, fd: fd, events: make([]unix.EpollEvent, 256)}, nil
}

func (p *epoll) begin() error { return nil }

func (p *epoll) dial(s *slot) error {
	ev := unix.EpollEvent{Events: unix.EPOLLOUT, Fd: s.number, Pad: s.gen}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, s.fd, &ev); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	s.writing = true
	return nil
}

// open has nothing to do: the request that is sent next says what is wanted.
func (p *epoll) open(*slot) error { return nil }

func (p *epoll) want(s *slot, write bool) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: s.number, Pad: s.gen}
	if write {
		ev.Events |= unix.EPOLLOUT
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, s.fd, &ev))
}

func (p *epoll) drop(s *slot) { _ = unix.Close(s.fd) } // it also leaves the epoll set

func (p *epoll) pause() bool { return false } // events that are there stay there

// wait waits for nanoseconds, where the kernel has epoll_pwait2 (5.11), because schedules are finer than a millisecond.
func (p *epoll) wait(d time.Duration) (int, error) {
	p.n = 0
	if !p.noPwait2 {
		ts := unix.NsecToTimespec(int64(d))
		n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
			uintptr(len(p.events)),
			uintptr(unsafe.Pointer(&ts)), 0, 0)
		switch errno {
		case 0:
			p.n = int(n)
			return p.n, nil
		case unix.EINTR:
			return 0, nil
		case unix.ENOSYS, unix.EPERM: // an old kernel, or a filter that does not know it
			p.noPwait2 = true
		default:
			return 0, os.NewSyscallError("epoll_pwait2", errno)
		}
	}
	n, err := unix.EpollWait(p.fd, p.events, int((d+999_999)/1_000_000))
	switch err {
	case nil:
		p.n = n
	case unix.EINTR:
		err = nil
	}
	return p.n, os.NewSyscallError("epoll_wait", err)
}

func (p *epoll) serve() {
	for i := range p.events[:p.n] {
		if ev := &p.events[i]; ev.Fd == stopSlot {
			p.l.cancel()
		} else if s := p.l.slots[ev.Fd]; s.gen == ev.Pad && s.fd >= 0 {
			p.ready(s, ev.Events)
		}
	}
}

func (p *epoll) ready(s *slot, events uint32) {
	switch s.state {
	case slotConnecting:
		p.l.connected(s)
	case slotOpen:
		if s.writing && events&unix.EPOLLOUT != 0 && !p.l.flush(s) {
			return
		}
		if events&^unix.EPOLLOUT != 0 {
			p.read(s)
		}
	default: // the server closed a connection that nobody used
		p.l.hangUp(s)
	}
}

// read reads what is there, once: level-triggered epoll comes back for more, and a second read would nearly always find
// nothing.
func (p *epoll) read(s *slot) {
	l := p.l
	n, err := unix.Read(s.fd, l.buf)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
	case err != nil || n == 0:
		l.broken(s, err)
	default:
		l.took(s, l.buf[:n], l.e.now())
	}
}

func (p *epoll) end() {}

func (p *epoll) close() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd)
		p.fd = -1
	}
}
