package doctor

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

const (
	headers4 = 20 + 8 // of IP and UDP
	headers6 = 40 + 8

	// What a QUIC packet needs (RFC 9000, 14), and the most that the QUIC library sends; the range of --max-mtu.
	minPacket = 1200
	maxPacket = 1452
)

// checkInterfaceMTU looks at the interfaces that have these addresses. One that is not of this machine (behind a NAT)
// has none here.
func checkInterfaceMTU(r *Report, s planeflags.Settings, addrs []string) {
	seen := map[string]bool{}
	for _, a := range addrs {
		name, ok := procstat.InterfaceOf(net.ParseIP(a))
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		if mtu, ok := procstat.MTU(name); ok {
			judgeMTU(r, s, "MTU of "+name, mtu, a)
		}
	}
}

// judgeMTU says what an MTU means for the plane.
func judgeMTU(r *Report, s planeflags.Settings, check string, mtu int, addr string) {
	if !usesQUIC(s) {
		r.ok(check, "%d", mtu)
		return
	}
	headers := headers4
	if a, err := netip.ParseAddr(addr); err == nil && a.Unmap().Is6() {
		headers = headers6
	}
	room := mtu - headers
	switch {
	case room < minPacket:
		r.fail(check, fmt.Sprintf("%d leaves %d bytes for a QUIC packet, QUIC needs %d", mtu, room, minPacket),
			fmt.Sprintf("raise the MTU to %d or more, or use --response-plane tls", minPacket+headers))
	case room < s.MaxMTU:
		r.fail(check, fmt.Sprintf("%d leaves %d bytes for a QUIC packet, --max-mtu %d is more", mtu, room, s.MaxMTU),
			fmt.Sprintf("use --max-mtu %d or less, or 0 for discovery", room))
	case s.MaxMTU > 0:
		r.ok(check, "%d, packets of --max-mtu %d fit", mtu, s.MaxMTU)
	default:
		r.ok(check, "%d, QUIC packets of up to %d bytes", mtu, min(room, maxPacket))
	}
}
