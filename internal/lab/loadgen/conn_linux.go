package loadgen

import (
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// zoneID is the number of an IPv6 zone, 0 when there is none.
func zoneID(zone string) uint32 {
	if zone == "" {
		return 0
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0
	}
	return uint32(ifi.Index)
}

// connectQueued starts connects, a bounded number at a time, so that a listener's queue is not overrun.
func (l *loop) connectQueued() {
	n := 0
	for n < len(l.queue) && l.dialing < maxDialing {
		s := l.queue[n]
		n++
		if s.state == slotQueued {
			l.connect(s)
		}
	}
	l.queue = append(l.queue[:0], l.queue[n:]...)
}

func (l *loop) connect(s *slot) {
	fd, err := unix.Socket(l.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		l.noConnection(s, os.NewSyscallError("socket", err))
		return
	}
	s.fd = fd
	s.gen++
	s.state = slotConnecting
	l.dialing++
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // without it a request may only be later
	if err := unix.Connect(fd, l.addr); err != nil && err != unix.EINPROGRESS {
		l.noConnection(s, os.NewSyscallError("connect", err))
		return
	}
	if err := l.io.dial(s); err != nil {
		l.noConnection(s, err)
	}
}

func (l *loop) noConnection(s *slot, err error) {
	l.hangUp(s)
	s.x.broke(report.EndConnect, err, l.e.now())
	l.ended(s)
}

// connected takes the end of a connect, good or bad.
func (l *loop) connected(s *slot) {
	code, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	if err != nil {
		l.noConnection(s, os.NewSyscallError("connect", err))
		return
	}
	l.dialing--
	s.state = slotOpen
	if err := l.io.open(s); err != nil {
		l.broken(s, err)
		return
	}
	l.send(s)
}

// send gives the slot's request to its connection.
func (l *loop) send(s *slot) {
	s.state = slotOpen
	l.buf = l.e.target.appendRequest(l.buf[:0], s.x.row.ID, s.x.osl)
	s.x.sent(l.e.now())
	n, err := unix.Write(s.fd, l.buf)
	if err == unix.EAGAIN || err == unix.EINTR {
		n, err = 0, nil
	}
	rest := len(l.buf) - max(n, 0)
	if rest > 0 && err == nil {
		s.out = append(s.out[:0], l.buf[n:]...)
	}
	l.buf = l.buf[:cap(l.buf)]
	if err != nil {
		l.broken(s, err)
		return
	}
	l.want(s, rest > 0)
}

// flush writes the rest of a request, false when the slot's connection is gone.
func (l *loop) flush(s *slot) bool {
	n, err := unix.Write(s.fd, s.out)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return true
	case err != nil:
		l.broken(s, err)
		return false
	}
	s.out = append(s.out[:0], s.out[n:]...)
	if len(s.out) == 0 {
		s.out = nil // few requests need it; thousands of slots must not keep it
		return l.want(s, false)
	}
	return true
}

// want sets whether the connection is asked for room to write, false when that failed and ended the request.
func (l *loop) want(s *slot, write bool) bool {
	if s.writing == write {
		return true
	}
	if err := l.io.want(s, write); err != nil {
		l.broken(s, err)
		return false
	}
	s.writing = write
	return true
}

// took takes bytes that came at now.
func (l *loop) took(s *slot, p []byte, now int64) {
	if s.x.read(p, now) {
		l.ended(s)
	} else if s.x.complete() {
		l.sleep(s, l.e.now()+int64(doneGrace))
	}
}

// broken takes the end of the connection. A request that went out on a kept connection which the server had closed
// meanwhile is sent once more.
func (l *loop) broken(s *slot, err error) {
	l.hangUp(s)
	if s.reused && !s.x.heard && s.x.row.Retries == 0 {
		s.x.row.Retries++
		s.reused, s.out = false, s.out[:0]
		s.state = slotQueued
		l.queue = append(l.queue, s)
		return
	}
	s.x.closed(err, l.e.now())
	l.ended(s)
}

// hangUp closes the slot's connection, if it has one.
func (l *loop) hangUp(s *slot) {
	if s.fd < 0 {
		return
	}
	if s.state == slotConnecting {
		l.dialing--
	}
	l.io.drop(s)
	s.fd, s.writing = -1, false
}
