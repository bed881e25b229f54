package quic

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	quicgo "github.com/quic-go/quic-go"

	"github.com/laneway-ai/laneway/internal/program/seldom"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// Transport makes QUIC lanes.
type Transport struct {
	cfg    Config
	log    *slog.Logger // bounded: most lines are what peers do wrong
	tally  base.Tally
	drops  atomic.Uint64 // packets dropped inside quic-go, as the recorders saw it
	blocks blocks        // receive buffers for GRO
	turns  turns         // of dials

	enableGRO func(fd int) error // groOn; tests put an older kernel in its place

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu        sync.Mutex
	closed    bool
	lanes     map[*lane]struct{}
	listeners map[*listener]struct{}
	past      transport.Counters // of lanes and sockets that are gone
	wg        sync.WaitGroup     // dials that run and lanes that are not torn down; Add under mu while not closed
}

var _ transport.Transport = (*Transport)(nil)

// New makes a Transport. It opens nothing.
func New(cfg Config) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := &Transport{
		cfg: cfg.withDefaults(), log: seldom.Logger(cfg.Logger), enableGRO: groOn,
		lanes: make(map[*lane]struct{}), listeners: make(map[*listener]struct{}),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// Plane implements transport.Transport.
func (t *Transport) Plane() string { return transport.PlaneQUIC }

// quicConfig is the configuration of connections with that stream window.
func (t *Transport) quicConfig(bytes int) *quicgo.Config {
	window := uint64(bytes)
	c := &quicgo.Config{
		HandshakeIdleTimeout: t.cfg.HandshakeTimeout,
		MaxIdleTimeout:       t.cfg.IdleTimeout,
		// Initial and maximum are the same: no tuning beyond what the buffer holds.
		InitialStreamReceiveWindow:     window,
		MaxStreamReceiveWindow:         window,
		InitialConnectionReceiveWindow: window * 3 / 2,
		MaxConnectionReceiveWindow:     window * 3 / 2,
		MaxIncomingStreams:             1, // the lane; a dialler takes none, but zero would mean the default
		MaxIncomingUniStreams:          -1,
	}
	if traces {
		c.Tracer = recorder{&t.drops}.tracer
	}
	if t.cfg.MaxMTU != 0 {
		c.InitialPacketSize = uint16(t.cfg.MaxMTU)
		c.DisablePathMTUDiscovery = true
	}
	return c
}

// over makes the quic-go transport of a socket.
func (t *Transport) over(s *socket) *quicgo.Transport {
	tr := &quicgo.Transport{Conn: s.packetConn(), Tracer: recorder{&t.drops}}
	if t.cfg.StatelessResetKey != nil {
		tr.StatelessResetKey = (*quicgo.StatelessResetKey)(t.cfg.StatelessResetKey)
	}
	return tr
}

// Dial implements transport.Transport.
func (t *Transport) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, transport.ErrClosed
	}
	t.wg.Add(1)
	t.mu.Unlock()
	defer t.wg.Done()

	l, err := t.dial(ctx, req)
	if err != nil {
		t.tally.DialErrors.Add(1)
		return nil, t.dialError(ctx, req, err)
	}
	t.tally.Dials.Add(1)
	return l, nil
}

func (t *Transport) dial(ctx context.Context, req transport.DialRequest) (*lane, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(t.ctx, stop)()
	done, err := t.turns.take(ctx, req.Address)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, t.cfg.HandshakeTimeout) // from when it has its turn
	defer cancel()

	s, remote, err := t.dialSocket(ctx, req.Address)
	if err != nil {
		return nil, err
	}
	cfg := t.quicConfig(s.window)
	cfg.MaxIncomingStreams = -1
	tr := t.over(s)
	conn, err := tr.Dial(ctx, remote, t.cfg.security().Client(req), cfg)
	if err != nil {
		tr.Close()
		s.Close()
		return nil, err
	}
	t.settle(s)
	s.serves(conn) // as long as the socket is there
	l, err := t.dialled(ctx, conn, s, tr, req.Lane)
	if err != nil {
		conn.CloseWithError(codeClosed, "")
		tr.Close()
		s.Close()
		return nil, err
	}
	return l, nil
}

func (t *Transport) dialled(ctx context.Context, conn *quicgo.Conn, s *socket, tr *quicgo.Transport, index int) (*lane,
	error) {
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	l, err := newLane(t, conn, stream, index)
	if err != nil {
		return nil, err
	}
	l.sock, l.tr = s, tr
	if !t.add(l) {
		return nil, transport.ErrClosed
	}
	return l, nil
}

// dialError says what was dialled and why it failed.
func (t *Transport) dialError(ctx context.Context, req transport.DialRequest, err error) error {
	return base.DialFailure{
		Plane: t.Plane(), Request: req, Limit: t.cfg.HandshakeTimeout,
		Silence: ", either nothing speaks QUIC there or UDP is blocked on the way",
		Closed:  t.ctx.Err() != nil, Err: t.explained(err, req.Address),
	}.Error(ctx)
}

// add registers an open lane, unless the transport is closed.
func (t *Transport) add(l *lane) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.lanes[l] = struct{}{}
	t.wg.Add(1)
	return true
}

// forget moves the counts of a lane that was torn down to the past.
func (t *Transport) forget(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	countPackets(&t.past, l.conn)
	if l.sock != nil {
		l.sock.count(&t.past)
	}
	delete(t.lanes, l)
}

// countPackets adds what a connection has counted to c.
func countPackets(c *transport.Counters, conn *quicgo.Conn) {
	s := conn.ConnectionStats()
	c.PacketsIn += s.PacketsReceived
	c.PacketsOut += s.PacketsSent
	c.PacketsLost += s.PacketsLost
}

// Counters implements transport.Transport. PacketsLost may go down by a few: a packet that counted as lost may still be
// acknowledged.
func (t *Transport) Counters() transport.Counters {
	t.mu.Lock()
	c := t.past
	lanes, lns := slices.Collect(maps.Keys(t.lanes)), slices.Collect(maps.Keys(t.listeners))
	t.mu.Unlock()
	for _, l := range lanes {
		countPackets(&c, l.conn)
		if l.sock != nil {
			l.sock.count(&c)
		}
	}
	for _, ln := range lns {
		for _, e := range ln.endpoints {
			e.sock.count(&c)
		}
	}
	base := t.tally.Counters()
	c.BytesIn, c.BytesOut = base.BytesIn, base.BytesOut
	c.Dials, c.DialErrors, c.Accepts, c.AcceptErrors = base.Dials, base.DialErrors, base.Accepts, base.AcceptErrors
	c.LibraryDrops += t.drops.Load()
	return c
}

// Sockets implements transport.Transport: the dialled lanes' sockets and the endpoints.
func (t *Transport) Sockets() []transport.SocketInfo {
	t.mu.Lock()
	lanes, lns := slices.Collect(maps.Keys(t.lanes)), slices.Collect(maps.Keys(t.listeners))
	t.mu.Unlock()
	var out []transport.SocketInfo
	for _, ln := range lns {
		for _, e := range ln.endpoints {
			out = append(out, e.sock.info(transport.RoleEndpoint, -1))
		}
	}
	for _, l := range lanes {
		if l.sock != nil { // it was dialled
			out = append(out, l.sock.info(transport.RoleLane, l.info.Lane))
		}
	}
	return out
}

// Close implements transport.Transport.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	lanes, lns := slices.Collect(maps.Keys(t.lanes)), slices.Collect(maps.Keys(t.listeners))
	t.mu.Unlock()
	t.cancel()
	closeAll(lanes)
	var errs []error
	for _, ln := range lns {
		errs = append(errs, ln.Close())
	}
	t.wg.Wait()
	return errors.Join(errs...)
}

// closeAll closes lanes side by side, so that a slow one does not hold up the others.
func closeAll(lanes []*lane) {
	var wg sync.WaitGroup
	for _, l := range lanes {
		wg.Go(func() { l.Close() })
	}
	wg.Wait()
}
