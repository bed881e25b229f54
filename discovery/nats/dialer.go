package nats

import (
	"context"
	"net"
	"time"
)

// dialer connects under a context, which nats.go has not, and closes what it connected when that ends.
type dialer struct {
	ctx context.Context
	end context.CancelFunc
	net net.Dialer
}

func newDialer(timeout time.Duration) *dialer {
	d := &dialer{net: net.Dialer{Timeout: timeout}}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.net.DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, release: context.AfterFunc(d.ctx, func() { c.Close() })}, nil
}

type conn struct {
	net.Conn
	release func() bool
}

func (c *conn) Close() error {
	c.release()
	return c.Conn.Close()
}
