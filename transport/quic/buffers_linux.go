package quic

import (
	"encoding/binary"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setBuffers asks for the buffers of a socket. The kernel clamps without an error.
func (t *Transport) setBuffers(c syscall.RawConn) error {
	var rerr, serr error
	if err := c.Control(func(fd uintptr) {
		rerr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, t.cfg.RecvBuffer)
		serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, t.cfg.SendBuffer)
	}); err != nil {
		return err
	}
	if rerr != nil {
		return os.NewSyscallError("setsockopt SO_RCVBUF", rerr)
	}
	return os.NewSyscallError("setsockopt SO_SNDBUF", serr)
}

// readBack asks the kernel what it granted; it counts double.
func (s *socket) readBack() error {
	raw, err := s.UDPConn.SyscallConn()
	if err != nil {
		return err
	}
	var rerr, serr error
	if err := raw.Control(func(fd uintptr) {
		s.recvGranted, rerr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
		s.sendGranted, serr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
	}); err != nil {
		return err
	}
	if rerr != nil {
		return rerr
	}
	return serr
}

// settle sets the buffers again now that quic-go runs on the socket, reads them back and warns if the kernel clamped
// them.
func (t *Transport) settle(s *socket) {
	raw, err := s.UDPConn.SyscallConn()
	if err == nil {
		err = t.setBuffers(raw)
	}
	if err == nil {
		err = s.readBack()
	}
	if err != nil {
		return // closed in the meantime
	}
	t.warn(s.LocalAddr().String(), "receive", s.recvAsked, s.recvGranted, "net.core.rmem_max")
	t.warn(s.LocalAddr().String(), "send", s.sendAsked, s.sendGranted, "net.core.wmem_max")
}

func (t *Transport) warn(socket, direction string, asked, granted int, sysctl string) {
	if granted >= 2*asked {
		return
	}
	t.log.Warn("transport: the kernel clamped a UDP buffer; bursts may be dropped", "socket", socket, "direction",
		direction,
		"asked", asked, "granted", granted, "granted_counts", "double", "fix", "sysctl -w "+sysctl+"="+
			strconv.Itoa(asked))
}

// drops is how many datagrams the kernel dropped at this socket, from SO_MEMINFO; of a closed socket what it was at the
// end.
func (s *socket) drops() uint64 {
	const skMemInfoDrops = 8 // SK_MEMINFO_DROPS
	raw, err := s.UDPConn.SyscallConn()
	if err != nil {
		return s.dropped.Load()
	}
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	var errno syscall.Errno
	if err := raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	}); err != nil || errno != 0 {
		return s.dropped.Load()
	}
	s.dropped.Store(uint64(info[skMemInfoDrops]))
	return s.dropped.Load()
}

// Close closes the socket and keeps what the kernel has counted.
func (s *socket) Close() error {
	s.drops()
	return s.UDPConn.Close()
}

func native16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
