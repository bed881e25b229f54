package tcp

import (
	"net"

	"golang.org/x/sys/unix"
)

// tcpClose is the kernel's TCP_CLOSE: the connection is no more. After the peer's FIN alone it is CLOSE_WAIT.
const tcpClose = 7

// gone says whether the connection is no more though this side has not ended its bytes: it was reset.
func gone(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		is = err == nil && info.State == tcpClose
	})
	return is
}
