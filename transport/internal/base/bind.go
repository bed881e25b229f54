package base

import (
	"fmt"
	"net"
	"strconv"
)

// MaxEndpoints is how many sockets one listener may have.
const MaxEndpoints = 64

// BindRange gives the addresses that a listener with n endpoints binds: host:P .. host:P+n-1, or n times host:0.
func BindRange(bind string, n int) ([]string, error) {
	if n < 1 || n > MaxEndpoints {
		return nil, fmt.Errorf("transport: %d endpoints asked for, the range is 1 to %d", n, MaxEndpoints)
	}
	host, port, err := net.SplitHostPort(bind)
	if err != nil {
		return nil, fmt.Errorf("transport: bind address %q is not host:port: %w", bind, err)
	}
	first, err := strconv.Atoi(port)
	if err != nil || first < 0 || first > 65535 {
		return nil, fmt.Errorf("transport: bind address %q has port %q, the range is 0 to 65535", bind, port)
	}
	if first != 0 && first+n-1 > 65535 {
		return nil,
			fmt.Errorf("transport: bind address %q needs ports %d to %d for %d endpoints, the last port is 65535: "+
				"choose a lower port", bind, first, first+n-1, n)
	}
	addrs := make([]string, n)
	for i := range addrs {
		p := first
		if first != 0 {
			p += i
		}
		addrs[i] = net.JoinHostPort(host, strconv.Itoa(p))
	}
	return addrs, nil
}

// Network is the network to bind addr on: proto4 for an IPv4 address, so that 0.0.0.0 does not become a socket for both
// families, else proto.
func Network(proto, addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.To4() != nil {
		return proto + "4"
	}
	return proto
}
