package transportbench

import (
	"context"
	"errors"
	"net"
	"syscall"

	quicgo "github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/transport"
)

// openGroup opens sockets that share one port, among which the kernel spreads connections by a hash. The transport has no such mode, because the hash is uneven:
// this is how much. Their buffers are the QUIC library's own (7 MiB where it may), not the transport's.
func (h *handler) openGroup(s Spec) (address string, close func() error, err error) {
	id, err := transport.NewIdentity()
	if err != nil {
		return "", nil, err
	}
	tls := transport.Security{Identity: id}.Server()
	var trs []*quicgo.Transport
	var conns []net.PacketConn
	ctx, cancel := context.WithCancel(context.Background())
	close = func() error {
		cancel()
		var errs []error
		for i, t := range trs {
			errs = append(errs, t.Close(), conns[i].Close())
		}
		return errors.Join(errs...)
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); e != nil {
			return e
		}
		return err
	}}
	address = net.JoinHostPort(h.host, "0")
	for range s.Group {
		pc, err := lc.ListenPacket(ctx, "udp", address)
		if err != nil {
			return "", nil, errors.Join(err, close())
		}
		address = pc.LocalAddr().String()
		t := &quicgo.Transport{Conn: pc}
		trs, conns = append(trs, t), append(conns, pc)
		l, err := t.Listen(tls, &quicgo.Config{MaxIdleTimeout: transportIdle, InitialStreamReceiveWindow: groupWindow, MaxStreamReceiveWindow: groupWindow, MaxConnectionReceiveWindow: 2 * groupWindow})
		if err != nil {
			return "", nil, errors.Join(err, close())
		}
		h.wg.Go(func() { // ends with ctx
			for {
				c, err := l.Accept(ctx)
				if err != nil {
					return
				}
				h.wg.Go(func() { // ends with the connection, which ends with its transport
					st, err := c.AcceptStream(ctx)
					if err == nil {
						_ = serveLane(st) // the client finds what is missing
					}
				})
			}
		})
	}
	return address, close, nil
}
