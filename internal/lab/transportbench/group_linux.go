package transportbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	quicgo "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/program/procstat"
	"github.com/laneway-ai/laneway/transport"
)

// group is sockets that share one port, among which the kernel spreads connections by a hash. The transport has no such
// mode, because the hash is uneven: this is how much. Buffers and windows are the transport's, its reader with GRO is
// not.
type group struct {
	address string
	port    int
	library atomic.Uint64 // packets that the library dropped

	trs     []*quicgo.Transport
	sockets []*net.UDPConn
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu    sync.Mutex
	conns []*quicgo.Conn
}

func openGroup(ctx context.Context, host string, s Spec) (_ *group, err error) {
	id, err := transport.NewIdentity()
	if err != nil {
		return nil, err
	}
	g := &group{address: net.JoinHostPort(host, "0")}
	ctx, g.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	tls, buffers := transport.Security{Identity: id}.Server(), s.Settings()
	for range s.Group {
		c, granted, err := g.listen(ctx, buffers.UDPRecvBuffer, buffers.UDPSendBuffer)
		if err != nil {
			return nil, err
		}
		t := &quicgo.Transport{Conn: c}
		g.trs = append(g.trs, t)
		// what the transport's lanes have, of which a socket here may get several
		window := uint64(max(min(granted/4, 1<<20), 64<<10))
		l, err := t.Listen(tls, &quicgo.Config{MaxIdleTimeout: transportIdle, InitialStreamReceiveWindow: window,
			MaxStreamReceiveWindow:         window,
			InitialConnectionReceiveWindow: window * 3 / 2, MaxConnectionReceiveWindow: window * 3 / 2,
			Tracer: g.trace})
		if err != nil {
			return nil, err
		}
		g.wg.Go(func() { g.serve(ctx, l) }) // ends with ctx
	}
	return g, nil
}

// listen opens one more socket on the group's port and tells how much receive buffer it was granted.
func (g *group) listen(ctx context.Context, recv, send int) (*net.UDPConn, int, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	pc, err := lc.ListenPacket(ctx, "udp", g.address)
	if err != nil {
		return nil, 0, err
	}
	c := pc.(*net.UDPConn)
	g.sockets = append(g.sockets, c)
	at := c.LocalAddr().(*net.UDPAddr)
	g.address, g.port = at.String(), at.Port
	if err := errors.Join(c.SetReadBuffer(recv), c.SetWriteBuffer(send)); err != nil {
		return nil, 0, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	granted := 0
	err = control(raw, func(fd int) (err error) {
		granted, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		return os.NewSyscallError("getsockopt", err)
	})
	return c, granted, err
}

func control(c syscall.RawConn, f func(fd int) error) (err error) {
	if e := c.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

func (g *group) serve(ctx context.Context, l *quicgo.Listener) {
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return
		}
		g.mu.Lock()
		g.conns = append(g.conns, c)
		g.mu.Unlock()
		g.wg.Go(func() { // ends with the connection, which ends with its transport
			st, err := c.AcceptStream(ctx)
			if err == nil {
				_ = serveLane(st) // the client finds what is missing
			}
		})
	}
}

// drops fills in what the server's side has dropped and lost.
func (g *group) drops(d *Drops) {
	if at, ok := procstat.UDPDrops(procstat.Self, g.port); ok {
		n := at[g.port] // of all its sockets
		d.Socket = &n
	}
	library, lost := g.library.Load(), uint64(0)
	g.mu.Lock()
	for _, c := range g.conns {
		lost += c.ConnectionStats().PacketsLost
	}
	g.mu.Unlock()
	d.Library, d.Lost = &library, &lost
}

func (g *group) close() error {
	g.cancel()
	var errs []error
	for _, t := range g.trs {
		errs = append(errs, t.Close())
	}
	for _, c := range g.sockets {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("a socket of the group: %w", err))
		}
	}
	g.wg.Wait()
	return errors.Join(errs...)
}

// trace has the library tell of packets that it drops because a connection's queue is full.
func (g *group) trace(context.Context, bool, quicgo.ConnectionID) qlogwriter.Trace {
	return queueDrops{&g.library}
}

type queueDrops struct{ n *atomic.Uint64 }

func (q queueDrops) AddProducer() qlogwriter.Recorder { return q }

func (q queueDrops) RecordEvent(e qlogwriter.Event) {
	if d, ok := e.(qlog.PacketDropped); ok && d.Trigger == qlog.PacketDropDOSPrevention {
		q.n.Add(1)
	}
}

func (queueDrops) Close() error { return nil }
