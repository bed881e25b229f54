package lanes

import (
	"net"
	"os"
	"sync"
	"time"
)

// packetConn is a net.PacketConn whose datagrams go to the other end of a pair through memory.
type packetConn struct {
	name  packetAddr
	in    chan []byte
	peer  *packetConn
	done  chan struct{}
	close sync.Once

	mu       sync.Mutex
	deadline time.Time
	moved    chan struct{} // closed when the deadline is set
}

// packetQueue is what an end holds; past it datagrams are dropped, as by a socket.
const packetQueue = 4096

type packetAddr string

func (a packetAddr) Network() string { return "memory" }
func (a packetAddr) String() string  { return string(a) }

func newPacketPair() (a, b *packetConn) {
	make1 := func(name packetAddr) *packetConn {
		return &packetConn{name: name, in: make(chan []byte, packetQueue), done: make(chan struct{}),
			moved: make(chan struct{})}
	}
	a, b = make1("a"), make1("b")
	a.peer, b.peer = b, a
	return a, b
}

func (c *packetConn) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		c.mu.Lock()
		deadline, moved := c.deadline, c.moved
		c.mu.Unlock()
		var late <-chan time.Time
		if !deadline.IsZero() {
			t := time.NewTimer(time.Until(deadline))
			defer t.Stop()
			late = t.C
		}
		select {
		case b := <-c.in:
			return copy(p, b), c.peer.name, nil
		case <-late:
			return 0, nil, os.ErrDeadlineExceeded
		case <-moved:
		case <-c.done:
			return 0, nil, net.ErrClosed
		}
	}
}

func (c *packetConn) WriteTo(p []byte, _ net.Addr) (int, error) {
	select {
	case <-c.done:
		return 0, net.ErrClosed
	default:
	}
	select {
	case c.peer.in <- append([]byte(nil), p...):
	default: // dropped
	}
	return len(p), nil
}

func (c *packetConn) Close() error {
	c.close.Do(func() { close(c.done) })
	return nil
}

func (c *packetConn) LocalAddr() net.Addr { return c.name }

func (c *packetConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	close(c.moved)
	c.moved = make(chan struct{})
	c.mu.Unlock()
	return nil
}

func (c *packetConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline has nothing to do: writes do not wait.
func (c *packetConn) SetWriteDeadline(time.Time) error { return nil }

// SetReadBuffer has nothing to do, nor has SetWriteBuffer: packetQueue is what an end holds. Without them quic-go
// complains of each connection.
func (c *packetConn) SetReadBuffer(int) error { return nil }

func (c *packetConn) SetWriteBuffer(int) error { return nil }
