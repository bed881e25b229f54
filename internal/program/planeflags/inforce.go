package planeflags

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/transport"
)

// Setting is a transport setting as it was asked for and as it is in force now.
type Setting struct {
	Name    string `json:"name"` // of the flag, without the dashes
	Asked   string `json:"asked"`
	InForce string `json:"in_force"`
}

// InForce are the transport settings of a node with those sockets, in the order of --help. Where the kernel or another
// setting decides, InForce says what came of it; where sockets differ, from least to most; where no socket tells yet,
// "unknown".
func (s Settings) InForce(sockets []transport.SocketInfo) []Setting {
	size := func(n int) string { return cli.FormatSize(int64(n)) }
	orZero := func(n int, meaning string) string {
		if n == 0 {
			return meaning
		}
		return size(n)
	}
	onOff := map[bool]string{true: "on", false: "off"}
	lanes := s.PlaneLanes()
	var perPlane []string
	for _, p := range s.Planes {
		n := s.Lanes
		if lanes[p] > 0 {
			n = lanes[p]
		}
		perPlane = append(perPlane, p+" "+strconv.Itoa(n))
	}
	udp, tcp := of(sockets, transport.PlaneQUIC), of(sockets, transport.PlaneTCP, transport.PlaneTLS)
	var out []Setting
	add := func(name, asked, inForce string) { out = append(out, Setting{name, asked, inForce}) }
	same := func(name, value string) { add(name, value, value) }

	same(planeFlag, strings.Join(s.Planes, ","))
	add("lanes", strconv.Itoa(s.Lanes), strings.Join(perPlane, ", "))
	add("server-endpoints", strconv.Itoa(s.ServerEndpoints), endpoints(Carriers(s.Planes), sockets))
	same("bind-addr", s.BindAddr)
	same("advertise-addr", s.AdvertiseAddr)
	add("udp-recv-buffer", size(s.UDPRecvBuffer),
		granted(udp, func(i transport.SocketInfo) (int, int) { return i.RecvAsked, i.RecvGranted }))
	add("udp-send-buffer", size(s.UDPSendBuffer),
		granted(udp, func(i transport.SocketInfo) (int, int) { return i.SendAsked, i.SendGranted }))
	add("tcp-recv-buffer", orZero(s.TCPRecvBuffer, "0"),
		granted(tcp, func(i transport.SocketInfo) (int, int) { return i.RecvAsked, i.RecvGranted }))
	add("tcp-send-buffer", orZero(s.TCPSendBuffer, "0"),
		granted(tcp, func(i transport.SocketInfo) (int, int) { return i.SendAsked, i.SendGranted }))
	mtu := spread(udp, func(i transport.SocketInfo) int { return i.MaxMTU }, strconv.Itoa)
	if s.MaxMTU == 0 && mtu != unknown {
		mtu = "discovery up to " + mtu
	}
	add("max-mtu", strconv.Itoa(s.MaxMTU), mtu)
	add("quic-stream-window", orZero(s.QUICStreamWindow, "from the granted buffer"),
		spread(udp, func(i transport.SocketInfo) int { return i.StreamWindow }, size))
	same("keep-alive-interval", cli.FormatDuration(s.KeepAlive))
	same("idle-timeout", cli.FormatDuration(s.Idle))
	active := s.ActivePing
	if active == 0 {
		active = s.KeepAlive
	}
	add("active-ping-interval", cli.FormatDuration(s.ActivePing), cli.FormatDuration(active))
	same("resume-timeout", cli.FormatDuration(s.Resume))
	same("lane-log", size(s.LaneLog))
	same("max-replay-bytes", cli.FormatSize(s.MaxReplay))
	same("stream-window", size(s.StreamWindow))
	same("batch-gap-max", cli.FormatDuration(s.BatchGap))
	same("urgent", onOff[s.Urgent])
	add("quic-gro", onOff[s.GRO], offload(udp, func(i transport.SocketInfo) bool { return i.GRO }))
	add("quic-gso", onOff[s.GSO], offload(udp, func(i transport.SocketInfo) bool { return i.GSO }))
	same("shrink-threshold", size(s.ShrinkThreshold))
	same("dial", map[bool]string{true: dialOnDemand, false: dialEager}[s.DialOnDemand])
	if s.TLSCA == "" {
		same("tls-ca", "pins")
	} else {
		same("tls-ca", s.TLSCA)
		same("tls-cert", s.TLSCert)
		same("tls-key", s.TLSKey)
		same("peer-name", s.PeerName)
	}
	same("tls-curves", strings.Join(s.TLSCurves, ","))
	if arm, ok := s.Arm(); ok {
		markUnused(arm.Name, out)
	}
	return out
}

// unknown stands for what no socket tells.
const unknown = "unknown"

// of are the sockets of planes.
func of(sockets []transport.SocketInfo, planes ...string) (out []transport.SocketInfo) {
	for _, i := range sockets {
		if slices.Contains(planes, i.Plane) {
			out = append(out, i)
		}
	}
	return out
}

// spread is what sockets have, from least to most.
func spread(sockets []transport.SocketInfo, value func(transport.SocketInfo) int, text func(int) string) string {
	if len(sockets) == 0 {
		return unknown
	}
	low, high := value(sockets[0]), value(sockets[0])
	for _, i := range sockets {
		low, high = min(low, value(i)), max(high, value(i))
	}
	if low == high {
		return text(low)
	}
	return text(low) + " to " + text(high)
}

// granted says what the kernel granted; it counts double, and less than double of what was asked is clamped.
func granted(sockets []transport.SocketInfo, value func(transport.SocketInfo) (asked, granted int)) string {
	s := spread(sockets, func(i transport.SocketInfo) int { _, g := value(i); return g },
		func(n int) string { return cli.FormatSize(int64(n)) })
	if s == unknown {
		return s
	}
	clamped := 0
	for _, i := range sockets {
		if a, g := value(i); g < 2*a {
			clamped++
		}
	}
	s += " granted"
	if clamped > 0 {
		s += fmt.Sprintf(", clamped on %d of %d sockets", clamped, len(sockets))
	}
	return s
}

// offload says on how many sockets an offload is in use.
func offload(sockets []transport.SocketInfo, on func(transport.SocketInfo) bool) string {
	n := 0
	for _, i := range sockets {
		if on(i) {
			n++
		}
	}
	switch {
	case len(sockets) == 0:
		return unknown
	case n == len(sockets):
		return "on"
	case n == 0:
		return "off"
	}
	return fmt.Sprintf("on %d of %d sockets", n, len(sockets))
}

// endpoints counts the listening sockets of each plane.
func endpoints(planes []string, sockets []transport.SocketInfo) string {
	var parts []string
	for _, p := range planes {
		n := 0
		for _, i := range of(sockets, p) {
			if i.Role == transport.RoleEndpoint {
				n++
			}
		}
		parts = append(parts, p+" "+strconv.Itoa(n))
	}
	return strings.Join(parts, ", ")
}
