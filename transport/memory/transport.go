package memory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// ErrRefused is why a dial to an address where nobody listens fails. It is syscall.ECONNREFUSED for errors.Is: whoever
// looks for evidence that a process has gone must find it on this plane as on those with sockets.
var ErrRefused error = refusedError{}

type refusedError struct{}

func (refusedError) Error() string { return "memory: connection refused" }

// Is implements errors.Is.
func (refusedError) Is(target error) bool { return target == syscall.ECONNREFUSED }

// ErrInUse is why a bind to an address that has a listener fails.
var ErrInUse = errors.New("memory: address already in use")

// Transport is one node's transport on a Network.
type Transport struct {
	net   *Network
	id    transport.NodeID
	tally base.Tally

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	// Under net.mu:
	closed    bool
	listeners map[*listener]struct{}
}

var _ transport.Transport = (*Transport)(nil)

func newTransport(n *Network, id transport.NodeID) *Transport {
	t := &Transport{net: n, id: id, listeners: make(map[*listener]struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Plane implements transport.Transport.
func (t *Transport) Plane() string { return t.net.cfg.Plane }

// Dial implements transport.Transport.
func (t *Transport) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	c, err := t.dial(ctx, req)
	if err != nil {
		t.tally.DialErrors.Add(1)
		var wrong *transport.IdentityError
		if err == transport.ErrClosed || errors.As(err, &wrong) {
			return nil, err
		}
		return nil, fmt.Errorf("transport: dial %s lane %d at %s: %w", t.Plane(), req.Lane, req.Address, err)
	}
	t.tally.Dials.Add(1)
	return c.handle(), nil
}

func (t *Transport) dial(ctx context.Context, req transport.DialRequest) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	n := t.net
	n.mu.Lock()
	closed, r, e := t.closed, n.dialing[req.Address], n.endpoints[req.Address]
	n.mu.Unlock()
	switch {
	case closed:
		return nil, transport.ErrClosed
	case r != nil && r.err != nil:
		return nil, r.err
	case r != nil:
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-t.ctx.Done():
			return nil, transport.ErrClosed
		}
	case e == nil:
		return nil, ErrRefused
	case n.cfg.Proves && !req.Peer.IsZero() && req.Peer != e.ln.t.id:
		return nil, &transport.IdentityError{Address: req.Address, Want: req.Peer, Got: e.ln.t.id}
	}
	// A place in the backlog first, so that the lane exists only when its acceptor has it.
	select {
	case e.ln.places <- struct{}{}:
	case <-e.ln.done:
		return nil, ErrRefused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.ctx.Done():
		return nil, transport.ErrClosed
	}
	dialled, err := n.connect(t, req, e)
	if err != nil {
		<-e.ln.places
		if t.ctx.Err() == nil {
			err = ErrRefused // the endpoint went, not this side
		}
		return nil, err
	}
	return dialled, nil
}

// Listen implements transport.Transport. The host is any name; "" and ":0" mean Host.
func (t *Transport) Listen(ctx context.Context, bind string, count int) (transport.Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if bind == "" {
		bind = ":0"
	}
	addrs, err := base.BindRange(bind, count)
	if err != nil {
		return nil, err
	}
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.closed {
		return nil, transport.ErrClosed
	}
	ln := &listener{
		t: t, done: make(chan struct{}),
		places: make(chan struct{}, n.cfg.Backlog), backlog: make(chan *Conn, n.cfg.Backlog),
	}
	for i, a := range addrs {
		host, port, _ := net.SplitHostPort(a) // BindRange made it
		if host == "" {
			host = Host
		}
		if port == "0" {
			port = strconv.Itoa(n.port(host))
		}
		a = net.JoinHostPort(host, port)
		if _, taken := n.endpoints[a]; taken {
			for _, e := range ln.endpoints {
				delete(n.endpoints, e.addr.String())
			}
			return nil, &transport.BindError{Plane: t.Plane(), Address: a, Index: i, Count: count, Err: ErrInUse}
		}
		e := &endpoint{addr: Addr(a), ln: ln}
		n.endpoints[a] = e
		ln.endpoints = append(ln.endpoints, e)
	}
	t.listeners[ln] = struct{}{}
	return ln, nil
}

// Sockets implements transport.Transport. A lane or endpoint of this plane counts as a socket without kernel buffers:
// what was granted is the Config's Buffer.
func (t *Transport) Sockets() []transport.SocketInfo {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []transport.SocketInfo
	add := func(role string, lane int, a net.Addr) {
		_, port, _ := net.SplitHostPort(a.String()) // made by this package
		p, _ := strconv.Atoi(port)
		out = append(out, transport.SocketInfo{
			Plane: t.Plane(), Role: role, Lane: lane, Port: p,
			RecvAsked: n.cfg.Buffer, RecvGranted: n.cfg.Buffer, SendAsked: n.cfg.Buffer, SendGranted: n.cfg.Buffer,
		})
	}
	for ln := range t.listeners {
		for _, e := range ln.endpoints {
			add(transport.RoleEndpoint, -1, e.addr)
		}
	}
	for c := range n.conns {
		if c.owner == t && c.info.Lane >= 0 {
			add(transport.RoleLane, c.info.Lane, c.info.Local)
		}
	}
	return out
}

// Counters implements transport.Transport.
func (t *Transport) Counters() transport.Counters { return t.tally.Counters() }

// Close implements transport.Transport.
func (t *Transport) Close() error {
	n := t.net
	n.mu.Lock()
	t.closed = true
	var conns []*Conn
	for c := range n.conns {
		if c.owner == t {
			conns = append(conns, c)
		}
	}
	var lns []*listener
	for ln := range t.listeners {
		lns = append(lns, ln)
	}
	n.mu.Unlock()
	t.cancel()
	for _, ln := range lns {
		ln.Close()
	}
	for _, c := range conns {
		c.Close()
	}
	return nil
}

func (t *Transport) forget(c *Conn) {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	delete(t.net.conns, c)
}
