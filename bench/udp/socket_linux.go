package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receiveTimeout is how long the receiver waits before it looks whether the sender has ended.
const receiveTimeout = 50 * time.Millisecond

// pair is a sending socket, connected to a receiving one.
type pair struct{ send, recv int }

func newPair(buffer int, gro bool) (p pair, err error) {
	p = pair{-1, -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.recv, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return p, os.NewSyscallError("socket", err)
	}
	if p.send, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return p, os.NewSyscallError("socket", err)
	}
	for _, fd := range []int{p.send, p.recv} {
		for _, option := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, buffer); err != nil {
				return p, os.NewSyscallError("setsockopt of a buffer", err)
			}
		}
	}
	wait := unix.NsecToTimeval(int64(receiveTimeout))
	if err := unix.SetsockoptTimeval(p.recv, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return p, os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	if gro {
		if err := unix.SetsockoptInt(p.recv, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
			return p, os.NewSyscallError("setsockopt UDP_GRO", err)
		}
	}
	if err := unix.Bind(p.recv, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return p, os.NewSyscallError("bind", err)
	}
	at, err := unix.Getsockname(p.recv)
	if err != nil {
		return p, os.NewSyscallError("getsockname", err)
	}
	if err := unix.Connect(p.send, at); err != nil {
		return p, os.NewSyscallError("connect", err)
	}
	return p, nil
}

func (p pair) close() error {
	var errs []error
	for _, fd := range []int{p.send, p.recv} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// mmsghdr is the kernel's struct of that name.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   uint32
}

// sender sends one way. Its buffers are the messages' memory.
type sender struct {
	fd   int
	way  Way
	size int // of a datagram
	buf  []byte
	ctl  []byte
	iovs []unix.Iovec
	msgs []mmsghdr
}

func newSender(fd int, w Way, size int) (*sender, error) {
	s := &sender{fd: fd, way: w, size: size}
	message := max(w.Segments, 1) * size
	s.buf = make([]byte, message*w.Messages)
	s.iovs, s.msgs = make([]unix.Iovec, w.Messages), make([]mmsghdr, w.Messages)
	switch w.By {
	case ByOption:
		if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, size); err != nil {
			return nil, os.NewSyscallError("setsockopt UDP_SEGMENT", err)
		}
	case ByMessage:
		s.ctl = make([]byte, unix.CmsgSpace(2))
		h := (*unix.Cmsghdr)(unsafe.Pointer(&s.ctl[0]))
		h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(2))
		binary.NativeEndian.PutUint16(s.ctl[unix.CmsgLen(0):], uint16(size))
	}
	for i := range s.msgs {
		s.iovs[i].Base = &s.buf[i*message]
		s.iovs[i].SetLen(message)
		h := &s.msgs[i].hdr
		h.Iov = &s.iovs[i]
		h.SetIovlen(1)
		if len(s.ctl) > 0 {
			h.Control = &s.ctl[0]
			h.SetControllen(len(s.ctl))
		}
	}
	return s, nil
}

// datagrams is how many one call sends.
func (s *sender) datagrams() int { return max(s.way.Segments, 1) * s.way.Messages }

// call numbers the datagrams of a call from n on and sends them all.
func (s *sender) call(n uint64) (calls int, err error) {
	for at := 0; at < len(s.buf); at += s.size {
		binary.LittleEndian.PutUint64(s.buf[at:], n)
		n++
	}
	if s.way.Messages == 1 {
		for {
			calls++
			if _, _, e := unix.Syscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msgs[0].hdr)),
				0); e == 0 {
				return calls, nil
			} else if e != unix.EINTR {
				return calls, os.NewSyscallError("sendmsg", e)
			}
		}
	}
	for sent := 0; sent < len(s.msgs); {
		calls++
		k, _, e := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msgs[sent])),
			uintptr(len(s.msgs)-sent), 0, 0, 0)
		if e != 0 && e != unix.EINTR {
			return calls, os.NewSyscallError("sendmmsg", e)
		}
		if e == 0 {
			sent += int(k)
		}
	}
	return calls, nil
}

// receiver takes what comes and checks it.
type receiver struct {
	fd       int
	size     int
	buf, ctl []byte
	next     uint64

	datagrams, wrong, calls int64
}

func newReceiver(fd, size int) *receiver {
	return &receiver{fd: fd, size: size, buf: make([]byte, 1<<16), ctl: make([]byte, unix.CmsgSpace(4))}
}

// errTimeout says that nothing came for receiveTimeout.
var errTimeout = errors.New("nothing came")

// call takes one message: a datagram, or with GRO several of one length.
func (r *receiver) call() error {
	n, control, flags, _, err := unix.Recvmsg(r.fd, r.buf, r.ctl, 0)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, syscall.EINTR):
		return errTimeout
	case err != nil:
		return os.NewSyscallError("recvmsg", err)
	case flags&unix.MSG_TRUNC != 0:
		return fmt.Errorf("a message of more than %d bytes", len(r.buf))
	}
	r.calls++
	segment := n
	if control > 0 {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&r.ctl[0]))
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO {
			segment = int(binary.NativeEndian.Uint32(r.ctl[unix.CmsgLen(0):]))
		}
	}
	for b := r.buf[:n]; len(b) > 0; b = b[min(segment, len(b)):] {
		r.datagrams++
		if min(segment, len(b)) != r.size {
			r.wrong++
			continue
		}
		// Numbers are missing where the socket has dropped; none may come twice or too late.
		if number := binary.LittleEndian.Uint64(b); number < r.next {
			r.wrong++
		} else {
			r.next = number + 1
		}
	}
	return nil
}
