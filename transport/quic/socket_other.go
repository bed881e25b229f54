//go:build !linux

package quic

import (
	"context"
	"net"

	quicgo "github.com/quic-go/quic-go"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// socket is a UDP socket without offload, counts or read-back: those are Linux's.
type socket struct {
	*net.UDPConn
	recvAsked, recvGranted int // what was granted is not known: what was asked
	sendAsked, sendGranted int
	window, mtu            int // in force on its lanes
}

// groOn is not used.
func groOn(int) error { return nil }

// blocks is empty: there is no GRO.
type blocks struct{}

func (t *Transport) dialSocket(ctx context.Context, address string) (*socket, *net.UDPAddr, error) {
	// A dialled socket only to resolve the name within ctx; quic-go needs one that is not connected.
	var d net.Dialer
	probe, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return nil, nil, err
	}
	remote := probe.RemoteAddr().(*net.UDPAddr)
	probe.Close()
	network := "udp6"
	if remote.IP.To4() != nil {
		network = "udp4"
	}
	c, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, nil, err
	}
	return t.newSocket(c, laneWindow), remote, nil
}

func (t *Transport) listenSocket(ctx context.Context, addr string) (*socket, error) {
	var lc net.ListenConfig
	c, err := lc.ListenPacket(ctx, base.Network("udp", addr), addr)
	if err != nil {
		return nil, err
	}
	return t.newSocket(c.(*net.UDPConn), endpointWindow), nil
}

func (t *Transport) newSocket(c *net.UDPConn, windowMost int) *socket {
	s := &socket{
		UDPConn:   c,
		recvAsked: t.cfg.RecvBuffer, recvGranted: t.cfg.RecvBuffer,
		sendAsked: t.cfg.SendBuffer, sendGranted: t.cfg.SendBuffer,
		window: t.cfg.window(t.cfg.RecvBuffer, windowMost), mtu: t.cfg.mtu(),
	}
	c.SetReadBuffer(s.recvAsked)
	c.SetWriteBuffer(s.sendAsked)
	return s
}

func (s *socket) packetConn() net.PacketConn { return s.UDPConn }

// settle sets the buffers again: quic-go has set its own.
func (t *Transport) settle(s *socket) {
	s.UDPConn.SetReadBuffer(s.recvAsked)
	s.UDPConn.SetWriteBuffer(s.sendAsked)
}

// serves does nothing: quic-go reads the socket itself.
func (s *socket) serves(*quicgo.Conn) (leave func()) { return func() {} }

// count adds nothing: what goes through the socket is not seen, and the connections' recorders count the library's
// drops.
func (s *socket) count(*transport.Counters) {}

// traces says that connections need a recorder to count the library's drops.
const traces = true

func (s *socket) info(role string, index int) transport.SocketInfo {
	return transport.SocketInfo{
		Plane: transport.PlaneQUIC, Role: role, Lane: index, Port: s.LocalAddr().(*net.UDPAddr).Port,
		RecvAsked: s.recvAsked, RecvGranted: s.recvGranted, SendAsked: s.sendAsked, SendGranted: s.sendGranted,
		StreamWindow: s.window, MaxMTU: s.mtu,
	}
}
