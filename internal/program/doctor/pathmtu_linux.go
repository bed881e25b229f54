package doctor

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pathMTU is what the kernel knows about the way to an address: the MTU of the interface, or less when it was told so.
// It sends nothing.
func pathMTU(ctx context.Context, address string) (mtu int, ip string, ok bool) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return 0, "", false
	}
	defer c.Close()
	remote, isUDP := c.RemoteAddr().(*net.UDPAddr)
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil || !isUDP {
		return 0, "", false
	}
	var got error
	if err := raw.Control(func(fd uintptr) {
		if remote.IP.To4() != nil {
			mtu, got = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU)
		} else {
			mtu, got = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU)
		}
	}); err != nil || got != nil {
		return 0, "", false
	}
	return mtu, remote.IP.String(), true
}
