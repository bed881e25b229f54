package quic

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// busy is how many handshakes at an endpoint make it ask for a proof of address (Retry) before it keeps anything of a
// dialler: whoever sends from addresses that are not his has no part in more. It costs an honest dialler a round trip.
const busy = 64

// Why a connection was refused.
var errNoPlace = errors.New("all places of handshakes are taken")

// acceptors is how many goroutines wait in quic-go's Accept for each endpoint. quic-go refuses a connection that is
// through its handshake when 32 are queued, which a storm of dials on a busy host reaches before one goroutine gets to
// run. One that waits in Accept takes its connection without a place in the queue, so this many more fit.
const acceptors = 64

// acceptPause is the wait after an unexpected error of quic-go's Accept.
const acceptPause = 100 * time.Millisecond

// endpoint is one server socket.
type endpoint struct {
	sock *socket
	tr   *quicgo.Transport
	ln   *quicgo.Listener

	// shaking is the places of handshakes. quic-go gives no hold of a connection before it is through its own, so none
	// can be ended; it is gone when nothing was heard of it for the handshake timeout.
	shaking *base.Places

	mu      sync.Mutex
	closed  bool
	watches sync.WaitGroup // reports of watch that run; Add under mu while not closed
}

// listener accepts on all endpoints of a node.
type listener struct {
	laneSet
	t         *Transport
	endpoints []*endpoint
	ready     chan *lane
	known     base.Known
	// of connections that are through their handshake and wait for their first byte or for Accept
	pending *base.Places
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	once    sync.Once
	done    chan struct{} // closed when Close is through
}

// Listen implements transport.Transport.
func (t *Transport) Listen(ctx context.Context, bind string, n int) (transport.Listener, error) {
	ln := &listener{
		laneSet: laneSet{lanes: make(map[*lane]struct{})},
		t:       t, ready: make(chan *lane), done: make(chan struct{}),
	}
	ln.pending = base.NewPlaces(&ln.known)
	var err error
	if ln.endpoints, err = base.BindAll(t.Plane(), bind, n,
		func(a string) (*endpoint, error) { return t.open(ctx, a, &ln.known) }, (*endpoint).close); err != nil {
		return nil, err
	}
	ln.ctx, ln.cancel = context.WithCancel(t.ctx)

	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		ln.cancel()
		ln.closeEndpoints()
		return nil, transport.ErrClosed
	}
	t.listeners[ln] = struct{}{}
	for _, e := range ln.endpoints {
		for range acceptors {
			ln.wg.Go(func() { ln.loop(e) })
		}
	}
	t.mu.Unlock()
	return ln, nil
}

// open binds one endpoint.
func (t *Transport) open(ctx context.Context, addr string, known *base.Known) (*endpoint, error) {
	s, err := t.listenSocket(ctx, addr)
	if err != nil {
		return nil, err
	}
	e := &endpoint{sock: s, tr: t.over(s), shaking: base.NewPlaces(known)}
	e.tr.VerifySourceAddress = func(net.Addr) bool { return e.shaking.Taken() >= busy }
	e.tr.ConnContext = func(ctx context.Context, from *quicgo.ClientInfo) (context.Context, error) {
		peer := from.RemoteAddr.String()
		place := e.shaking.Take(from.RemoteAddr, nil)
		if place == nil {
			e.failed(t, peer, errNoPlace)
			return nil, errNoPlace
		}
		e.watch(t, ctx, peer, place)
		return context.WithValue(ctx, shaking{}, place), nil
	}
	e.ln, err = e.tr.Listen(t.cfg.security().Server(), t.quicConfig(s.window))
	if err != nil {
		e.tr.Close()
		s.Close()
		return nil, err
	}
	t.settle(s)
	return e, nil
}

// shaking is the key of a connection's place in its context.
type shaking struct{}

// watch reports a connection whose handshake fails: quic-go's Accept shows only those that are through it. ctx ends
// with the connection.
func (e *endpoint) watch(t *Transport, ctx context.Context, peer string, place *base.Place) {
	context.AfterFunc(ctx, func() {
		place.Leave()
		e.mu.Lock()
		closed := e.closed
		if !closed {
			e.watches.Add(1)
		}
		e.mu.Unlock()
		if closed {
			return
		}
		defer e.watches.Done()
		bad, ok := errors.AsType[*quicgo.TransportError](context.Cause(ctx))
		if !ok || !bad.ErrorCode.IsCryptoError() {
			return
		}
		e.failed(t, peer, t.explained(bad, peer))
	})
}

// failed reports a connection that does not come through its handshake.
func (e *endpoint) failed(t *Transport, peer string, err error) {
	t.tally.AcceptErrors.Add(1)
	t.log.Warn("transport: an incoming lane failed its handshake", "plane", t.Plane(), "endpoint",
		e.sock.LocalAddr().String(), "peer", peer, "err", err)
}

// close ends the endpoint with all its connections.
func (e *endpoint) close() {
	e.ln.Close()
	e.tr.Close()
	e.sock.Close()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.watches.Wait()
}

// Accept implements transport.Listener.
func (ln *listener) Accept(ctx context.Context) (transport.Conn, error) {
	l, err := base.Take(ctx, ln.ctx, ln.ready)
	if err != nil {
		return nil, err
	}
	ln.t.tally.Accepts.Add(1)
	return l, nil
}

// Endpoints implements transport.Listener.
func (ln *listener) Endpoints() []net.Addr {
	out := make([]net.Addr, len(ln.endpoints))
	for i, e := range ln.endpoints {
		out[i] = e.sock.LocalAddr()
	}
	return out
}

// Vouch implements transport.Listener.
func (ln *listener) Vouch(addr net.Addr) { ln.known.Vouch(addr) }

// Close implements transport.Listener. Its lanes share the endpoints' sockets and end too.
func (ln *listener) Close() error {
	ln.once.Do(func() {
		ln.cancel()
		for _, e := range ln.endpoints {
			e.ln.Close() // no further connections
		}
		ln.wg.Wait() // no further lanes
		closeAll(ln.list())
		ln.closeEndpoints()
		ln.t.mu.Lock()
		delete(ln.t.listeners, ln)
		for _, e := range ln.endpoints {
			e.sock.count(&ln.t.past)
		}
		ln.t.mu.Unlock()
		close(ln.done)
	})
	<-ln.done
	return nil
}

func (ln *listener) closeEndpoints() {
	for _, e := range ln.endpoints {
		e.close()
	}
}

// loop accepts on one endpoint until the listener is closed.
func (ln *listener) loop(e *endpoint) {
	for {
		conn, err := e.ln.Accept(ln.ctx)
		if err != nil {
			if ln.ctx.Err() != nil || errors.Is(err, quicgo.ErrServerClosed) {
				return
			}
			ln.t.tally.AcceptErrors.Add(1)
			ln.t.log.Warn("transport: cannot accept lanes, retrying", "plane", ln.t.Plane(), "endpoint",
				e.sock.LocalAddr().String(), "err", err)
			select {
			case <-ln.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		if place, ok := conn.Context().Value(shaking{}).(*base.Place); ok {
			place.Leave()
		}
		leave := e.sock.serves(conn)
		ctx, cancel := context.WithTimeout(ln.ctx, ln.t.cfg.HandshakeTimeout)
		place := ln.pending.Take(conn.RemoteAddr(), cancel)
		if place == nil { // quic-go's own queue is short (32), so the loop must not wait
			cancel()
			ln.refuse(conn, codeBusy, "too many lanes wait to be accepted")
			leave()
			continue
		}
		ln.wg.Go(func() {
			defer place.Leave()
			defer cancel()
			if l := ln.lane(ctx, conn, place); l == nil || !ln.serve(l, leave) {
				leave()
			}
		})
	}
}

// refuse ends a connection that becomes no lane.
func (ln *listener) refuse(conn *quicgo.Conn, code quicgo.ApplicationErrorCode, why string) {
	if ln.ctx.Err() == nil {
		ln.t.tally.AcceptErrors.Add(1)
		ln.t.log.Warn("transport: an incoming lane was refused", "plane", ln.t.Plane(), "endpoint",
			conn.LocalAddr().String(), "peer", conn.RemoteAddr().String(), "err", why)
	}
	conn.CloseWithError(code, why)
	ln.t.mu.Lock()
	countPackets(&ln.t.past, conn)
	ln.t.mu.Unlock()
}

// lane waits for the stream of a connection; nil if none comes.
func (ln *listener) lane(ctx context.Context, conn *quicgo.Conn, place *base.Place) *lane {
	stream, err := conn.AcceptStream(ctx)
	switch {
	case place.Evicted():
		ln.refuse(conn, codeBusy, "no first byte, and another one needed its place")
		return nil
	case err != nil:
		ln.refuse(conn, codeNoStream, "no first byte: "+err.Error())
		return nil
	}
	place.Finish()
	l, err := newLane(ln.t, conn, stream, -1)
	if err != nil {
		ln.refuse(conn, codeNoStream, err.Error())
		return nil
	}
	return l
}

// serve waits for Accept. The lane calls leave when it is torn down; false if it is none of ours, because the transport
// is closed.
func (ln *listener) serve(l *lane, leave func()) bool {
	l.ln, l.leave = ln, leave
	if !ln.t.add(l) {
		l.conn.CloseWithError(codeClosed, "")
		return false
	}
	ln.add(l)
	select {
	case ln.ready <- l:
	case <-ln.ctx.Done():
		l.Close()
	case <-l.conn.Context().Done(): // the peer gave up before anyone accepted
		ln.t.tally.AcceptErrors.Add(1)
		l.Close()
	}
	return true
}
