package httpbench

import (
	"context"

	"github.com/laneway-ai/laneway/transport"
)

// pass is an frontend.Pass: a run of sink calls on one goroutine.
type pass struct {
	value any
	after func()
}

// Value implements frontend.Pass.
func (p *pass) Value() any { return p.value }

// Defer implements frontend.Pass.
func (p *pass) Defer(value any, after func()) { p.value, p.after = value, after }

// finish ends the pass. What is next is another one.
func (p *pass) finish() {
	if after := p.after; after != nil {
		p.value, p.after = nil, nil
		after()
	}
}

// passTransport gives the sinks of a bare connection its reads as passes, so that the frontend's out path sends the
// events of a read together, as it does for Laneway: when the reader asks for more, it has handed out what it had.
type passTransport struct {
	transport.Transport
	next *pass // of the connection that is dialled next
}

// Dial implements transport.Transport.
func (t *passTransport) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	c, err := t.Transport.Dial(ctx, req)
	if err != nil {
		return nil, err
	}
	conn := &passConn{Conn: c, pass: t.next}
	if try, ok := c.(transport.TryWriter); ok {
		return struct {
			*passConn
			transport.TryWriter
		}{conn, try}, nil
	}
	return conn, nil
}

type passConn struct {
	transport.Conn
	pass *pass
	err  error // came with bytes; told after their pass
}

// Read implements transport.Conn.
func (c *passConn) Read(p []byte) (int, error) {
	c.pass.finish()
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.Conn.Read(p)
	if n > 0 && err != nil {
		c.err, err = err, nil
	}
	return n, err
}
