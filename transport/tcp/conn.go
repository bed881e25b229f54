package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// conn is a TCP lane.
type conn struct {
	t     *Transport
	raw   *net.TCPConn
	below *below    // raw, on plane tls
	tls   *tls.Conn // nil on plane tcp
	rw    net.Conn  // raw or tls: what carries the lane's bytes
	info  transport.ConnInfo
	gate  base.Gate
	out   vector      // plane tcp
	join  base.Joiner // plane tls
}

var _ transport.Conn = (*conn)(nil)

func newConn(t *Transport, raw *net.TCPConn, lane int) *conn {
	return &conn{
		t: t, raw: raw, rw: raw, below: &below{TCPConn: raw},
		info: transport.ConnInfo{Plane: t.plane, Local: raw.LocalAddr(), Remote: raw.RemoteAddr(), Lane: lane},
	}
}

// handshake makes the lane one with TLS.
func (c *conn) handshake(ctx context.Context, tc *tls.Conn) error {
	if err := tc.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.explained(fmt.Errorf("TLS handshake: %w", err))
	}
	id, proven, err := c.t.cfg.security().Peer(tc.ConnectionState(), c.info.Remote.String())
	if err != nil {
		return err
	}
	c.tls, c.rw = tc, tc
	c.info.Peer, c.info.Proven = id, proven
	return nil
}

// explained turns an error of crypto/tls into one that says what was expected and what came, where that is known.
func (c *conn) explained(err error) error {
	address := c.info.Remote.String()
	if other, ok := errors.AsType[tls.RecordHeaderError](err); ok && other.Conn != nil { // the first bytes that came
		return &transport.ProtocolError{Address: address, Want: "TLS",
			Got: fmt.Sprintf("the bytes % x, which are not TLS", other.RecordHeader[:]), Err: err}
	}
	return c.t.cfg.security().Explain(err, address, remoteAlert(err))
}

// remoteAlert is the alert that the peer sent, nil if the error is another one. crypto/tls wraps a number of a type
// that it does not export.
func remoteAlert(err error) *tls.AlertError {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return nil
	}
	v := reflect.ValueOf(op.Err)
	if v.Kind() != reflect.Uint8 {
		return nil
	}
	a := tls.AlertError(v.Uint())
	return &a
}

// notTLS is what a peer that does not speak TLS is answered, so that it too sees what it has reached: the alert
// protocol_version and the end.
var notTLS = []byte{21, 3, 3, 0, 2, 2, 70, 21, 3, 3, 0, 2, 1, 0}

// partTime bounds how long a lane that failed its handshake may take to say so.
const partTime = time.Second

// part ends a lane that failed its handshake. An abort could overtake the alert that tells the peer why, so this side
// says that it is through, and waits for the peer to go, a second at most. The context ends the wait.
func (c *conn) part(ctx context.Context, failed error) {
	defer context.AfterFunc(ctx, c.abort)()
	if other, ok := errors.AsType[*transport.ProtocolError](failed); ok {
		if _, ok := errors.AsType[tls.RecordHeaderError](other.Err); ok {
			_ = c.raw.SetWriteDeadline(time.Now().Add(partTime))
			_, _ = c.raw.Write(notTLS)
		}
	}
	_ = c.raw.CloseWrite()
	_ = c.raw.SetReadDeadline(time.Now().Add(partTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(c.raw, 1<<20))
	c.abort()
}

// Read implements transport.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := c.rw.Read(p)
	if n > 0 {
		c.t.tally.BytesIn.Add(uint64(n))
		c.t.tally.RecvCalls.Add(1)
		return n, nil // an error comes again
	}
	if err == io.EOF && !c.clean() {
		err = errCut
	}
	return 0, c.mapped(err)
}

// errCut is what a lane ends with that was cut or aborted where the peer has not ended its bytes.
var errCut = fmt.Errorf("the connection ended in the middle of its bytes: %w", io.ErrUnexpectedEOF)

// clean says whether the end of the bytes that a read has met is the peer's CloseWrite. crypto/tls takes a FIN between
// two records for the alert close_notify that should have come before it; and the kernel reports a reset once, so a
// write may have had it and leave the read with what looks like the end.
func (c *conn) clean() bool {
	if c.tls != nil {
		return !c.below.ended.Load()
	}
	return c.gate.HalfClosed() || !gone(c.raw)
}

// below is the TCP connection as crypto/tls gets it. It notes the end of its bytes.
type below struct {
	*net.TCPConn
	ended atomic.Bool
}

// Read implements net.Conn.
func (b *below) Read(p []byte) (int, error) {
	n, err := b.TCPConn.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// Write implements transport.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.gate.Enter(); err != nil {
		return 0, err
	}
	n, err := c.rw.Write(p)
	return c.wrote(n, err)
}

// WriteBuffers implements transport.Conn.
func (c *conn) WriteBuffers(bufs [][]byte) error {
	if err := c.gate.Enter(); err != nil {
		return err
	}
	var n int
	var err error
	if c.tls != nil {
		n, err = c.join.Write(c.tls, bufs)
	} else {
		n, err = c.out.write(c.raw, bufs)
	}
	_, err = c.wrote(n, err)
	return err
}

// wrote counts, maps the error, and ends the lane's bytes if that was asked for while the write ran.
func (c *conn) wrote(n int, err error) (int, error) {
	c.t.tally.BytesOut.Add(uint64(n))
	c.t.tally.SendCalls.Add(1)
	if c.gate.Leave() {
		if e := c.endWrites(); err == nil {
			err = e
		}
	}
	return n, c.mapped(err)
}

// CloseWrite implements transport.Conn. If a Write runs, its bytes go first.
func (c *conn) CloseWrite() error {
	now, err := c.gate.Half()
	if now {
		err = c.mapped(c.endWrites())
	}
	return err
}

// endWrites sends FIN, or on plane tls the alert close_notify.
func (c *conn) endWrites() error {
	if c.tls != nil {
		return c.tls.CloseWrite()
	}
	return c.raw.CloseWrite()
}

// Close implements transport.Conn.
func (c *conn) Close() error {
	if c.gate.Close() {
		c.abort()
		c.t.forget(c)
	}
	return nil
}

// abort ends the connection with a reset, so that the kernel does not go on delivering. tls.Conn.Close would wait up to
// 5 s behind a blocked write to say goodbye; the lane below it just goes.
func (c *conn) abort() {
	c.raw.SetLinger(0)
	c.raw.Close()
}

// mapped turns what a read or write gave after Close into ErrClosed.
func (c *conn) mapped(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if c.gate.Closed() || errors.Is(err, net.ErrClosed) {
		return transport.ErrClosed
	}
	if c.tls != nil {
		return c.explained(err) // in TLS 1.3 a refused client learns it after its handshake
	}
	return err
}

// Info implements transport.Conn.
func (c *conn) Info() transport.ConnInfo { return c.info }
