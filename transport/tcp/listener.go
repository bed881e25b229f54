package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// maxHandshakes bounds the TLS handshakes that one listener runs at once, together with the lanes that have finished theirs and
// wait for Accept. When it is reached, further connections wait in the kernel's backlog.
const maxHandshakes = 256

// listener accepts on all endpoints of a node.
type listener struct {
	t         *Transport
	endpoints []*net.TCPListener
	ready     chan *conn    // unbuffered: what nobody accepts waits in the kernel
	slots     chan struct{} // one per TLS handshake
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
}

// Listen implements transport.Transport.
func (t *Transport) Listen(ctx context.Context, bind string, n int) (transport.Listener, error) {
	ln := &listener{t: t, ready: make(chan *conn), slots: make(chan struct{}, maxHandshakes)}
	lc := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error { return t.control(c) }}
	lc.SetMultipathTCP(false)
	var err error
	if ln.endpoints, err = base.BindAll(t.plane, bind, n, func(a string) (*net.TCPListener, error) {
		l, err := lc.Listen(ctx, base.Network("tcp", a), a)
		if err != nil {
			return nil, err
		}
		return l.(*net.TCPListener), nil
	}, shut); err != nil {
		return nil, err
	}
	ln.ctx, ln.cancel = context.WithCancel(t.ctx)

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		ln.cancel()
		ln.closeEndpoints()
		return nil, transport.ErrClosed
	}
	t.listeners[ln] = struct{}{}
	for _, l := range ln.endpoints {
		ln.wg.Go(func() { ln.loop(l) })
	}
	return ln, nil
}

// Accept implements transport.Listener.
func (ln *listener) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := base.Take(ctx, ln.ctx, ln.ready)
	if err != nil {
		return nil, err
	}
	if !ln.t.add(c) {
		c.Close()
		return nil, transport.ErrClosed
	}
	ln.t.tally.Accepts.Add(1)
	return c.handle(), nil
}

// Endpoints implements transport.Listener.
func (ln *listener) Endpoints() []net.Addr {
	out := make([]net.Addr, len(ln.endpoints))
	for i, l := range ln.endpoints {
		out[i] = l.Addr()
	}
	return out
}

// Close implements transport.Listener. Accepted lanes stay open; those in a handshake or not yet accepted are aborted.
func (ln *listener) Close() error {
	ln.cancel()
	ln.closeEndpoints()
	ln.wg.Wait()
	ln.t.mu.Lock()
	delete(ln.t.listeners, ln) // only now, so that every Transport.Close waits for the goroutines
	ln.t.mu.Unlock()
	return nil
}

func (ln *listener) closeEndpoints() {
	for _, l := range ln.endpoints {
		shut(l)
	}
}

func shut(l *net.TCPListener) { l.Close() } // fails only if it is closed already

// accepter is what the accept loop needs of a *net.TCPListener.
type accepter interface {
	AcceptTCP() (*net.TCPConn, error)
	Addr() net.Addr
}

// loop accepts on one endpoint until the listener is closed.
func (ln *listener) loop(l accepter) {
	var retry backoff
	for {
		raw, err := l.AcceptTCP()
		if err != nil {
			if ln.ctx.Err() != nil {
				return
			}
			ln.t.tally.AcceptErrors.Add(1)
			if errors.Is(err, syscall.ECONNABORTED) {
				continue // that peer went away while it waited
			}
			wait, first := retry.next()
			if first {
				ln.t.log.Warn("transport: cannot accept lanes, retrying", "plane", ln.t.plane, "endpoint", l.Addr().String(), "err", err,
					"fix", "if this is about file descriptors, raise the limit (ulimit -n)")
			}
			select {
			case <-ln.ctx.Done():
				return
			case <-time.After(wait):
			}
			continue
		}
		if retry.over() {
			ln.t.log.Info("transport: accepting lanes again", "plane", ln.t.plane, "endpoint", l.Addr().String())
		}
		raw.SetNoDelay(true)
		c := newConn(ln.t, raw, -1)
		if !ln.t.cfg.TLS {
			ln.offer(c)
			continue
		}
		select {
		case ln.slots <- struct{}{}:
		case <-ln.ctx.Done():
			c.abort()
			return
		}
		ln.wg.Go(func() {
			defer func() { <-ln.slots }()
			ln.serve(c)
		})
	}
}

// serve runs the TLS handshake of an accepted lane and offers it.
func (ln *listener) serve(c *conn) {
	ctx, cancel := context.WithDeadline(ln.ctx, ln.t.deadline())
	defer cancel()
	if err := c.handshake(ctx, tls.Server(c.below, ln.t.cfg.security().Server())); err != nil {
		if ln.ctx.Err() == nil {
			ln.t.tally.AcceptErrors.Add(1)
			ln.t.log.Warn("transport: an incoming lane failed its handshake", "plane", ln.t.plane, "endpoint", c.info.Local.String(), "peer", c.info.Remote.String(), "err", err)
		}
		c.part(ctx, err)
		return
	}
	ln.offer(c)
}

// offer waits until Accept takes the lane.
func (ln *listener) offer(c *conn) {
	select {
	case ln.ready <- c:
	case <-ln.ctx.Done():
		c.abort()
	}
}
