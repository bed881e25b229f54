package netns

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// largestPacket watches what comes out of a node until a UDP packet of more than above bytes is seen, IP header and
// all, or the time is up. It returns the largest. Path MTU discovery takes its time, and until it is through packets of
// 1,280 bytes would pass any path.
func (r *rig) largestPacket(t *testing.T, node string, above int, limit time.Duration) (largest int) {
	t.Helper()
	var fd int
	if err := r.net.Hub().Do(func() error {
		port, err := net.InterfaceByName(r.net.Node(node).Port)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		// says how a batch of UDP_SEGMENT will be cut
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: port.Index}))
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const vnet, ether, udp = 10, 14, 8
	buf := make([]byte, 1<<17)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && largest <= above; {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if l, ok := from.(*unix.SockaddrLinklayer); !ok || l.Pkttype == unix.PACKET_OUTGOING || n < vnet+ether+40 {
			continue
		}
		ip := buf[vnet+ether : n]
		header, proto := 20, ip[9]
		if ip[0]>>4 == 6 {
			header, proto = 40, ip[6]
		}
		if proto != unix.IPPROTO_UDP {
			continue
		}
		size := len(ip)
		if segment := int(binary.NativeEndian.Uint16(buf[4:])); buf[1] != 0 && segment > 0 {
			size = min(size, header+udp+segment)
		}
		largest = max(largest, size)
	}
	return largest
}
