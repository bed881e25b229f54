package outpath

import (
	"context"
	"net"
)

// Listen returns l with its TCP connections replaced by *Conn. Connections of another kind stay as they are: a TLS
// listener must be put over the result, not under it. hangups watches them; it may be nil.
func Listen(l net.Listener, hangups *Hangups) net.Listener { return listener{l, hangups} }

type listener struct {
	net.Listener
	hangups *Hangups
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		return newConn(tcp, l.hangups), nil
	}
	return c, nil
}

type key struct{}

// ConnContext is for http.Server: the contexts of a connection's requests know it.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	t, overTLS := c.(interface{ NetConn() net.Conn })
	if overTLS {
		c = t.NetConn()
	}
	if c, ok := c.(*Conn); ok {
		c.overTLS.Store(overTLS)
		return context.WithValue(ctx, key{}, c)
	}
	return ctx
}

// From is the connection of a request's context; nil when it is not one of this package's.
func From(ctx context.Context) *Conn {
	c, _ := ctx.Value(key{}).(*Conn)
	return c
}
