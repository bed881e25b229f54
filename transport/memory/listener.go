package memory

import (
	"context"
	"net"
	"sync"

	"github.com/laneway-ai/laneway/transport"
)

// endpoint is one address of a listener.
type endpoint struct {
	addr   Addr
	ln     *listener
	closed bool // under Network.mu
}

// listener has no goroutine: dialled lanes wait in its backlog.
type listener struct {
	t         *Transport
	endpoints []*endpoint
	places    chan struct{} // held by each lane that is being dialled or waits in backlog
	backlog   chan *Conn
	done      chan struct{}
	once      sync.Once
}

// Accept implements transport.Listener.
func (ln *listener) Accept(ctx context.Context) (transport.Conn, error) {
	for {
		select {
		case <-ln.done:
			return nil, transport.ErrClosed
		default:
		}
		select {
		case c := <-ln.backlog:
			<-ln.places
			if c.gate.Closed() { // its transport was closed
				continue
			}
			ln.t.tally.Accepts.Add(1)
			return c.handle(), nil
		case <-ln.done:
			return nil, transport.ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Endpoints implements transport.Listener.
func (ln *listener) Endpoints() []net.Addr {
	out := make([]net.Addr, len(ln.endpoints))
	for i, e := range ln.endpoints {
		out[i] = e.addr
	}
	return out
}

// Vouch implements transport.Listener. There is no handshake here.
func (ln *listener) Vouch(net.Addr) {}

// Close implements transport.Listener. Lanes that wait in the backlog are closed, accepted ones stay.
func (ln *listener) Close() error {
	ln.once.Do(func() {
		n := ln.t.net
		n.mu.Lock()
		for _, e := range ln.endpoints {
			e.closed = true
			delete(n.endpoints, e.addr.String())
		}
		delete(ln.t.listeners, ln)
		n.mu.Unlock()
		close(ln.done)
		// Every lane that was made for this listener is in the backlog: connect puts it there under the lock.
		for {
			select {
			case c := <-ln.backlog:
				<-ln.places
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}
