package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/internal/program/seldom"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// Transport makes TCP lanes.
type Transport struct {
	cfg   Config
	plane string
	log   *slog.Logger // bounded: most lines are what peers do wrong
	tally base.Tally

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu        sync.Mutex
	closed    bool
	conns     map[*conn]struct{}
	listeners map[*listener]struct{}
	dials     sync.WaitGroup // dials that run; Add under mu while not closed
}

var _ transport.Transport = (*Transport)(nil)

// New makes a Transport. It opens nothing.
func New(cfg Config) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.NotSentLowat == 0 {
		cfg.NotSentLowat = DefaultNotSentLowat
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = DefaultHandshakeTimeout
	}
	t := &Transport{
		cfg: cfg, plane: transport.PlaneTCP, log: seldom.Logger(cfg.Logger),
		conns: make(map[*conn]struct{}), listeners: make(map[*listener]struct{}),
	}
	if cfg.TLS {
		t.plane = transport.PlaneTLS
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// Plane implements transport.Transport: "tcp", or "tls" if Config.TLS is set.
func (t *Transport) Plane() string { return t.plane }

// Dial implements transport.Transport.
func (t *Transport) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, transport.ErrClosed
	}
	t.dials.Add(1)
	t.mu.Unlock()
	defer t.dials.Done()

	c, err := t.dial(ctx, req)
	if err != nil {
		t.tally.DialErrors.Add(1)
		return nil, err
	}
	t.tally.Dials.Add(1)
	return c.handle(), nil
}

func (t *Transport) dial(outer context.Context, req transport.DialRequest) (*conn, error) {
	ctx, cancel := context.WithTimeout(outer, t.cfg.HandshakeTimeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()

	d := net.Dialer{KeepAlive: -1, ControlContext: func(_ context.Context, network, _ string, c syscall.RawConn) error {
		return t.control(c)
	}}
	d.SetMultipathTCP(false)
	nc, err := d.DialContext(ctx, "tcp", req.Address)
	if err != nil {
		return nil, t.dialError(outer, req, err)
	}
	raw := nc.(*net.TCPConn)
	raw.SetNoDelay(true)
	c := newConn(t, raw, req.Lane)
	if t.cfg.TLS {
		tc := tls.Client(c.below, t.cfg.security().Client(req))
		if err := c.handshake(ctx, tc); err != nil {
			c.part(ctx, err)
			return nil, t.dialError(outer, req, err)
		}
	}
	if !t.add(c) {
		c.abort()
		return nil, transport.ErrClosed
	}
	return c, nil
}

// dialError says what was dialled and why it failed.
func (t *Transport) dialError(ctx context.Context, req transport.DialRequest, err error) error {
	return base.DialFailure{Plane: t.plane, Request: req, Limit: t.cfg.HandshakeTimeout, Closed: t.ctx.Err() != nil,
		Err: err}.Error(ctx)
}

// control sets the options of a socket before connect or listen.
func (t *Transport) control(c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) { err = setOptions(fd, t.cfg) }); cerr != nil {
		return cerr
	}
	return err
}

// add registers an open lane, unless the transport is closed.
func (t *Transport) add(c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.conns[c] = struct{}{}
	return true
}

func (t *Transport) forget(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// Sockets implements transport.Transport. Accepted lanes have sockets of their own here; they stand as RoleLane with
// lane -1. Granted is read now: with 0 asked the kernel changes it while the lane runs.
func (t *Transport) Sockets() []transport.SocketInfo {
	t.mu.Lock()
	conns, lns := slices.Collect(maps.Keys(t.conns)), slices.Collect(maps.Keys(t.listeners))
	t.mu.Unlock()

	var out []transport.SocketInfo
	add := func(role string, lane int, a net.Addr, sc syscall.Conn) {
		recv, send, err := granted(sc)
		if err != nil {
			return // closed in the meantime
		}
		out = append(out, transport.SocketInfo{
			Plane: t.plane, Role: role, Lane: lane, Port: a.(*net.TCPAddr).Port,
			RecvAsked: t.cfg.RecvBuffer, RecvGranted: recv, SendAsked: t.cfg.SendBuffer, SendGranted: send,
			NotSentLowat: t.lowat(),
		})
	}
	for _, ln := range lns {
		for _, e := range ln.endpoints {
			add(transport.RoleEndpoint, -1, e.Addr(), e)
		}
	}
	for _, c := range conns {
		add(transport.RoleLane, c.info.Lane, c.info.Local, c.raw)
	}
	return out
}

// lowat is the TCP_NOTSENT_LOWAT that is in force, 0 where there is none.
func (t *Transport) lowat() int {
	if runtime.GOOS != "linux" {
		return 0
	}
	return max(t.cfg.NotSentLowat, 0)
}

// Counters implements transport.Transport.
func (t *Transport) Counters() transport.Counters { return t.tally.Counters() }

// Close implements transport.Transport.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	conns, lns := slices.Collect(maps.Keys(t.conns)), slices.Collect(maps.Keys(t.listeners))
	t.mu.Unlock()
	t.cancel()
	var errs []error
	for _, ln := range lns {
		errs = append(errs, ln.Close())
	}
	for _, c := range conns {
		c.Close()
	}
	t.dials.Wait()
	return errors.Join(errs...)
}

// deadline is when a handshake that begins now must be done.
func (t *Transport) deadline() time.Time { return time.Now().Add(t.cfg.HandshakeTimeout) }
