package quic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// socket is a UDP socket as quic-go gets it: buffers as they were asked for, reads with GRO, and counts.
type socket struct {
	*net.UDPConn
	remote *net.UDPAddr // of a lane's socket, which is connected; nil on endpoints
	noGSO  bool

	recvAsked, recvGranted int
	sendAsked, sendGranted int
	window, mtu            int // in force on its lanes

	gsoProbed bool        // the kernel has UDP_SEGMENT and nobody turned it off
	gsoFailed atomic.Bool // a batch was refused by the device
	handed    atomic.Bool // quic-go is through with its buffers
	in, out   atomic.Uint64
	received  atomic.Uint64 // system calls that brought datagrams
	sent      atomic.Uint64 // system calls that sent some
	dropped   atomic.Uint64 // by the kernel, as it was last read

	accounts accounts      // of who sends here, for pace
	peer     *account      // the only one, of a lane's socket; nil on endpoints
	fed      []*account    // of the reader: whose datagrams came since it last was in pace
	lost     atomic.Uint64 // datagrams that no connection saw

	plain *ipv4.PacketConn // recvmmsg, without GRO
	gro   *groReader       // nil if GRO is off
}

// dialSocket opens a lane's socket. It is connected, so that the kernel reports a port where nobody listens.
func (t *Transport) dialSocket(ctx context.Context, address string) (*socket, *net.UDPAddr, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return t.setBuffers(c) }}
	c, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return nil, nil, err
	}
	remote := c.RemoteAddr().(*net.UDPAddr)
	s, err := t.newSocket(c.(*net.UDPConn), remote)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return s, remote, nil
}

// listenSocket opens an endpoint's socket.
func (t *Transport) listenSocket(ctx context.Context, addr string) (*socket, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return t.setBuffers(c) }}
	c, err := lc.ListenPacket(ctx, base.Network("udp", addr), addr)
	if err != nil {
		return nil, err
	}
	s, err := t.newSocket(c.(*net.UDPConn), nil)
	if err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

// groOn asks the kernel to join datagrams of one sender.
func groOn(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) }

func (t *Transport) newSocket(c *net.UDPConn, remote *net.UDPAddr) (*socket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{
		UDPConn: c, remote: remote, noGSO: t.cfg.DisableGSO,
		recvAsked: t.cfg.RecvBuffer, sendAsked: t.cfg.SendBuffer,
		plain: ipv4.NewPacketConn(c),
	}
	if err := s.readBack(); err != nil {
		return nil, err
	}
	s.window, s.mtu = t.cfg.window(s.recvGranted, endpointWindow), t.cfg.mtu()
	if remote != nil {
		s.window = t.cfg.window(s.recvGranted, laneWindow)
		s.peer = s.accounts.of(remote.AddrPort(), remote)
	}
	off, _ := strconv.ParseBool(os.Getenv("QUIC_GO_DISABLE_GSO")) // as quic-go reads it
	var gro, gso error
	if err := raw.Control(func(fd uintptr) {
		_, gso = unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		if !t.cfg.DisableGRO {
			gro = t.enableGRO(int(fd))
		}
	}); err != nil {
		return nil, err
	}
	s.gsoProbed = gso == nil && !off && !s.noGSO
	if !t.cfg.DisableGRO && gro == nil {
		s.gro = newGROReader(raw, &t.blocks, s)
	}
	return s, nil
}

// packetConn is what quic-go gets.
func (s *socket) packetConn() net.PacketConn { return s }

// errBuffers answers quic-go while it wants to set the buffers itself.
var errBuffers = errors.New("quic: the buffers of this socket are set by the laneway transport")

// SyscallConn refuses until quic-go has gone through its buffers: without the descriptor it calls SetReadBuffer and
// SetWriteBuffer, which do nothing, and neither forces its own sizes as root nor warns on the standard logger.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	if !s.handed.Load() {
		return nil, errBuffers
	}
	return s.UDPConn.SyscallConn()
}

// SetReadBuffer is called by quic-go and does nothing.
func (s *socket) SetReadBuffer(int) error { return nil }

// SetWriteBuffer is the last that quic-go calls for its buffers. It does nothing else.
func (s *socket) SetWriteBuffer(int) error {
	s.handed.Store(true)
	return nil
}

// WriteMsgUDP sends one datagram, or a batch of them if oob says so. With GSO off, or after the device has refused a
// batch, it sends a batch one by one. (quic-go has a fallback of its own, with a data race in it.)
func (s *socket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (int, int, error) {
	seg := segmentSize(oob)
	if seg == 0 {
		return len(b), len(oob), s.send(b, oob, addr, 1)
	}
	if !s.noGSO && !s.gsoFailed.Load() {
		err := s.send(b, oob, addr, (len(b)+seg-1)/seg)
		if !errors.Is(err, unix.EIO) {
			return len(b), len(oob), err
		}
		s.gsoFailed.Store(true) // the device has no checksum offload
	}
	single := withoutSegment(make([]byte, 0, 128), oob)
	for rest := b; len(rest) > 0; {
		n := min(seg, len(rest))
		if err := s.send(rest[:n], single, addr, 1); err != nil {
			return len(b) - len(rest), len(oob), err
		}
		rest = rest[n:]
	}
	return len(b), len(oob), nil
}

// send is one sendmsg of so many datagrams.
func (s *socket) send(b, oob []byte, addr *net.UDPAddr, datagrams int) error {
	var to netip.AddrPort // not valid: connected
	if s.remote == nil && addr != nil {
		to = addr.AddrPort()
	}
	_, _, err := s.UDPConn.WriteMsgUDPAddrPort(b, oob, to) // WriteMsgUDP allocates an address each time
	switch {
	case err == nil:
		s.out.Add(uint64(datagrams))
		s.sent.Add(1)
		return nil
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		// The host is short of buffers now. quic-go would end the connection; QUIC repairs a lost packet.
		return nil
	}
	return unwrapped(err)
}

// unwrapped gives quic-go the *os.SyscallError that it looks for.
func unwrapped(err error) error {
	if op, ok := err.(*net.OpError); ok {
		if se, ok := op.Err.(*os.SyscallError); ok {
			return se
		}
	}
	return err
}

// segmentSize is the UDP_SEGMENT of control messages, 0 if there is none.
func segmentSize(oob []byte) int {
	for len(oob) > 0 {
		h, body, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_SEGMENT && len(body) >= 2 {
			return int(native16(body))
		}
		oob = rest
	}
	return 0
}

// withoutSegment appends to dst the control messages of oob but for UDP_SEGMENT.
func withoutSegment(dst, oob []byte) []byte {
	for len(oob) > 0 {
		h, _, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		if h.Level != unix.IPPROTO_UDP || h.Type != unix.UDP_SEGMENT {
			dst = append(dst, oob[:len(oob)-len(rest)]...)
		}
		oob = rest
	}
	return dst
}

// ReadBatch is how quic-go reads.
func (s *socket) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	s.pace()
	for {
		var n int
		var err error
		if s.gro != nil {
			n, err = s.gro.read(ms)
		} else if n, err = s.plain.ReadBatch(ms, flags); err == nil {
			s.received.Add(1)
			s.feedsAll(ms[:n])
		}
		if err == nil {
			s.in.Add(uint64(n))
			return n, nil
		}
		if !passing(err) {
			return 0, err
		}
	}
}

// feedsAll notes who sent what was read without GRO.
func (s *socket) feedsAll(ms []ipv4.Message) {
	for i := range ms {
		a := s.peer
		if a == nil {
			addr, ok := ms[i].Addr.(*net.UDPAddr)
			if !ok {
				continue
			}
			a = s.accounts.of(addr.AddrPort(), addr)
		}
		s.feeds(a, 1)
	}
}

// passing says whether a read error is a report about one packet that was sent, such as "message too long" for a probe
// of path MTU discovery. Reading it clears it. ECONNREFUSED is not passing: the peer's port is closed, so its process
// is gone.
func passing(err error) bool {
	for _, e := range []error{unix.EMSGSIZE, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENETDOWN,
		unix.ENOPROTOOPT, unix.EACCES, unix.EOPNOTSUPP, unix.EPROTO, unix.ENONET} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// count adds what went through the socket to c.
func (s *socket) count(c *transport.Counters) {
	c.DatagramsIn += s.in.Load()
	c.DatagramsOut += s.out.Load()
	c.RecvCalls += s.received.Load()
	c.SendCalls += s.sent.Load()
	c.SocketDrops += s.drops()
	c.LibraryDrops += s.lost.Load()
}

// info describes the socket.
func (s *socket) info(role string, index int) transport.SocketInfo {
	return transport.SocketInfo{
		Plane: transport.PlaneQUIC, Role: role, Lane: index, Port: s.LocalAddr().(*net.UDPAddr).Port,
		RecvAsked: s.recvAsked, RecvGranted: s.recvGranted, SendAsked: s.sendAsked, SendGranted: s.sendGranted,
		StreamWindow: s.window, MaxMTU: s.mtu,
		GRO: s.gro != nil, GSO: s.gsoProbed && !s.gsoFailed.Load(),
		Drops: s.drops(), PacketsIn: s.in.Load(), PacketsOut: s.out.Load(),
	}
}
