package memory

import (
	"errors"
	"fmt"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// ErrPeerClosed is what Read and Write return after the other end closed the lane.
var ErrPeerClosed = errors.New("memory: lane closed by the peer")

// ErrCut is what Read and Write return after a Cut that named no error.
var ErrCut = errors.New("memory: lane cut")

// Conn is one end of a lane. Beside transport.Conn it has the faults: those that name a direction act on what this end
// writes. All faults may be set at any time by anyone.
type Conn struct {
	owner *Transport
	info  transport.ConnInfo
	in    *pipe
	out   *pipe
	peer  *Conn
	gate  base.Gate
	id    uint64 // order of the dial
}

var _ transport.Conn = (*Conn)(nil)

// Read implements transport.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	c.owner.tally.BytesIn.Add(uint64(n))
	return n, err
}

// Write implements transport.Conn.
func (c *Conn) Write(p []byte) (int, error) { return c.write([][]byte{p}, false) }

// WriteBuffers implements transport.Conn.
func (c *Conn) WriteBuffers(bufs [][]byte) error {
	_, err := c.write(bufs, false)
	return err
}

func (c *Conn) write(bufs [][]byte, try bool) (int, error) {
	if err := c.gate.Enter(); err != nil {
		return 0, err
	}
	n, err := c.out.write(bufs, try)
	c.owner.tally.BytesOut.Add(uint64(n))
	if c.gate.Leave() {
		c.out.finish(base.ErrWriteClosed)
	}
	return n, err
}

// CloseWrite implements transport.Conn. If a Write runs, its bytes go first.
func (c *Conn) CloseWrite() error {
	now, err := c.gate.Half()
	if now {
		c.out.finish(base.ErrWriteClosed)
	}
	return err
}

// Close implements transport.Conn: both ends fail at once and what is queued is dropped.
func (c *Conn) Close() error {
	if !c.gate.Close() {
		return nil
	}
	c.in.fail(transport.ErrClosed, ErrPeerClosed)
	c.out.fail(ErrPeerClosed, transport.ErrClosed)
	c.owner.forget(c)
	return nil
}

// Info implements transport.Conn.
func (c *Conn) Info() transport.ConnInfo { return c.info }

// Peer is the other end.
func (c *Conn) Peer() *Conn { return c.peer }

// Cut makes both ends fail at once, as a network that resets the lane; nil means ErrCut. What is queued is dropped.
// Both ends still have to be closed by their owners.
func (c *Conn) Cut(err error) {
	if err == nil {
		err = ErrCut
	}
	c.in.fail(err, err)
	c.out.fail(err, err)
}

// Stall stops the delivery of what this end writes, without an error; the writer goes on until the buffer is full.
func (c *Conn) Stall() { c.out.setStalled(true) }

// Release ends a Stall.
func (c *Conn) Release() { c.out.setStalled(false) }

// SetLatency delays what this end writes from now on.
func (c *Conn) SetLatency(d time.Duration) { c.out.setLatency(d) }

// SetRate bounds what this end delivers, in bytes a second; 0 means no bound.
func (c *Conn) SetRate(bytes int) { c.out.setRate(bytes) }

// Queued is how many bytes this end has written that the other end has not read.
func (c *Conn) Queued() int { return c.out.queued() }

func (c *Conn) String() string {
	return fmt.Sprintf("memory lane %d %s -> %s", c.info.Lane, c.info.Local, c.info.Remote)
}

// tryConn is a Conn of a network whose Config asks for TryWrite.
type tryConn struct{ *Conn }

var _ transport.TryWriter = tryConn{}

// TryWrite implements transport.TryWriter.
func (c tryConn) TryWrite(p []byte) (int, error) { return c.write([][]byte{p}, true) }

// TryWriteBuffers implements transport.TryWriter.
func (c tryConn) TryWriteBuffers(bufs [][]byte) (int, error) { return c.write(bufs, true) }

// handle is what the owner of the transport gets.
func (c *Conn) handle() transport.Conn {
	if c.owner.net.cfg.TryWrite {
		return tryConn{c}
	}
	return c
}
