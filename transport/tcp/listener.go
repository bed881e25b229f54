package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// errNoPlace and errEvicted are why a connection of plane tls has not become a lane.
var (
	errNoPlace = errors.New("all places of handshakes are taken")
	errEvicted = fmt.Errorf("it was not through its handshake after %v, and another one needed its place",
		base.PlaceGrace)
)

// listener accepts on all endpoints of a node.
type listener struct {
	t         *Transport
	endpoints []*net.TCPListener
	ready     chan *conn // unbuffered: what nobody accepts waits in the kernel, on plane tls in its place
	known     base.Known
	places    *base.Places // of TLS handshakes, and of lanes that are through theirs and wait for Accept
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
}

// Listen implements transport.Transport.
func (t *Transport) Listen(ctx context.Context, bind string, n int) (transport.Listener, error) {
	ln := &listener{t: t, ready: make(chan *conn)}
	ln.places = base.NewPlaces(&ln.known)
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

// Vouch implements transport.Listener.
func (ln *listener) Vouch(addr net.Addr) { ln.known.Vouch(addr) }

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
				ln.t.log.Warn("transport: cannot accept lanes, retrying", "plane", ln.t.plane, "endpoint",
					l.Addr().String(), "err", err,
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
		place := ln.places.Take(c.info.Remote, c.abort)
		if place == nil { // the kernel's backlog is no place to wait: those who are known wait there behind the others
			ln.failed(c, errNoPlace)
			c.abort()
			continue
		}
		ln.wg.Go(func() {
			defer place.Leave()
			ln.serve(c, place)
		})
	}
}

// serve runs the TLS handshake of an accepted lane and offers it.
func (ln *listener) serve(c *conn, place *base.Place) {
	ctx, cancel := context.WithDeadline(ln.ctx, ln.t.deadline())
	defer cancel()
	if err := c.handshake(ctx, tls.Server(c.below, ln.t.cfg.security().Server())); err != nil {
		if place.Evicted() {
			err = errEvicted
		}
		ln.failed(c, err)
		c.part(ctx, err)
		return
	}
	place.Finish()
	ln.offer(c)
}

// failed reports a connection that becomes no lane.
func (ln *listener) failed(c *conn, err error) {
	if ln.ctx.Err() == nil {
		ln.t.tally.AcceptErrors.Add(1)
		ln.t.log.Warn("transport: an incoming lane failed its handshake", "plane", ln.t.plane, "endpoint",
			c.info.Local.String(), "peer", c.info.Remote.String(), "err", err)
	}
}

// offer waits until Accept takes the lane.
func (ln *listener) offer(c *conn) {
	select {
	case ln.ready <- c:
	case <-ln.ctx.Done():
		c.abort()
	}
}
