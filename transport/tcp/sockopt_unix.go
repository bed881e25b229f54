//go:build unix

package tcp

import (
	"os"
	"syscall"
)

// setOptions sets the buffers of a socket before it connects or listens: later the window scale is fixed.
func setOptions(fd uintptr, cfg Config) error {
	if cfg.RecvBuffer > 0 {
		if err := syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, cfg.RecvBuffer); err != nil {
			return os.NewSyscallError("setsockopt SO_RCVBUF", err)
		}
	}
	if cfg.SendBuffer > 0 {
		if err := syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, cfg.SendBuffer); err != nil {
			return os.NewSyscallError("setsockopt SO_SNDBUF", err)
		}
	}
	return setLowat(int(fd), cfg.NotSentLowat)
}

// granted reads back the buffers of a socket.
func granted(sc syscall.Conn) (recv, send int, err error) {
	c, err := sc.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var rerr, serr error
	err = c.Control(func(fd uintptr) {
		recv, rerr = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
		send, serr = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF)
	})
	switch {
	case err != nil:
	case rerr != nil:
		err = rerr
	default:
		err = serr
	}
	return recv, send, err
}
