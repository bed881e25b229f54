package tcp

import (
	"os"

	"golang.org/x/sys/unix"
)

// setLowat sets TCP_NOTSENT_LOWAT; accepted sockets inherit it from their listener.
func setLowat(fd, bytes int) error {
	if bytes < 0 {
		return nil
	}
	return os.NewSyscallError("setsockopt TCP_NOTSENT_LOWAT", unix.SetsockoptInt(fd, unix.IPPROTO_TCP,
		unix.TCP_NOTSENT_LOWAT, bytes))
}
