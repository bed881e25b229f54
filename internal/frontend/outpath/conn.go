package outpath

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	// Buffer is how many bytes a Conn holds at most of what its client has not taken.
	Buffer = 64 << 10
	// keep is the room that stays with a connection once its buffer is empty.
	keep = 4 << 10
)

// ErrFull is the error of a write that would take more than Buffer. The connection cannot be written to any more.
var ErrFull = errors.New("outpath: the client has not taken its bytes and the buffer is full")

// Conn is a TCP connection whose Write is an ordinary one, or, while Inline, one that does not wait: what the kernel
// does not take is held until Settle, or until the next ordinary Write, which sends it first. Success of an inline
// Write means "taken or held".
//
// All methods may be called concurrently, as with any net.Conn.
type Conn struct {
	net.Conn // no ReadFrom: all bytes go through Write
	tcp      *net.TCPConn
	raw      syscall.RawConn
	fd       int
	overTLS  atomic.Bool // its writes come from more goroutines than a batch's

	answer answer

	into   atomic.Pointer[Batch] // writes go there: they are its goroutine's, which holds mu and fdMu
	fdMu   sync.Mutex            // held while fd must stay open; never during a write that waits
	closed bool                  // guarded by fdMu

	mu     sync.Mutex // held by each write, also by one that waits; Close and the deadlines do without
	inline bool
	rest   []byte // held for the client
	broken error  // a write failed midway: what would follow it must not be sent

	// Arguments and results of try, which is made once so that a write does not allocate.
	try    func(fd uintptr)
	tryP   []byte
	tryN   int
	tryErr error
}

func newConn(tcp *net.TCPConn, hangups *Hangups) *Conn {
	c := &Conn{Conn: tcp, tcp: tcp, answer: answer{hangups: hangups}}
	c.raw, _ = tcp.SyscallConn() // its only error is a nil connection
	_ = c.raw.Control(func(fd uintptr) { c.fd = int(fd) })
	c.try = func(fd uintptr) {
		for {
			c.tryN, c.tryErr = syscall.Write(int(fd), c.tryP)
			if c.tryErr != syscall.EINTR {
				return
			}
		}
	}
	return c
}

// FD is the connection's descriptor, to compare only: it may be closed at any time.
func (c *Conn) FD() int { return c.fd }

// Inline says whether writes from now on must not wait. It returns when no write that may wait is under way.
func (c *Conn) Inline(on bool) {
	c.mu.Lock()
	c.inline = on
	c.mu.Unlock()
}

// Held is how many bytes wait for the client.
func (c *Conn) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.rest)
}

// Settle sends what is held; it waits for the client as long as the write deadline allows. It must not be called while
// Inline.
func (c *Conn) Settle() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settle()
}

func (c *Conn) settle() error {
	if c.broken != nil {
		return c.broken
	}
	if len(c.rest) == 0 {
		return nil
	}
	if _, err := c.tcp.Write(c.rest); err != nil {
		return c.fail(err)
	}
	if c.rest = c.rest[:0]; cap(c.rest) > keep {
		c.rest = nil
	}
	return nil
}

func (c *Conn) fail(err error) error {
	c.broken, c.rest = err, nil
	return err
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	if b := c.into.Load(); b != nil {
		return b.write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.inline {
		if err := c.settle(); err != nil {
			return 0, err
		}
		return c.tcp.Write(p)
	}
	if c.broken != nil {
		return 0, c.broken
	}
	n := 0
	if len(c.rest) == 0 {
		var err error
		if n, err = c.tryWrite(p); err != nil {
			return n, c.fail(err)
		}
	}
	if n < len(p) {
		if err := c.hold(p[n:]); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// hold keeps p for the client. The lock is held.
func (c *Conn) hold(p []byte) error {
	if len(c.rest)+len(p) > Buffer {
		return c.fail(ErrFull)
	}
	c.rest = append(c.rest, p...)
	return nil
}

// Err is the error of a write that failed midway; no further one succeeds.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// Close implements net.Conn. It ends writes that wait. It is a reset when an answer is under way.
func (c *Conn) Close() error {
	c.fdMu.Lock() // a batch is being sent: its descriptors must not become another's
	defer c.fdMu.Unlock()
	c.closing()
	c.closed = true
	return c.tcp.Close()
}

// tryWrite writes what the kernel takes at once. It asks for the descriptor by Control: by Write, a deadline that has
// passed since the last write would fail it.
func (c *Conn) tryWrite(p []byte) (int, error) {
	c.tryP = p
	err := c.raw.Control(c.try)
	n := c.tryN
	c.tryP = nil
	switch {
	case err != nil: // closed
		return 0, err
	case c.tryErr == syscall.EAGAIN:
		return 0, nil
	case c.tryErr != nil:
		return 0, &net.OpError{Op: "write", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: c.tryErr}
	}
	return n, nil
}

// CloseWrite ends the connection's sending side; net/http uses it.
func (c *Conn) CloseWrite() error { return c.tcp.CloseWrite() }
