//go:build unix

package tcp

import (
	"net"
	"os"
	"syscall"

	"github.com/laneway-ai/laneway/transport"
)

// vector is what a write of segments on plane tcp needs. It is the lane's, so that a write allocates nothing.
type vector struct {
	segments
	raw   syscall.RawConn
	f     func(fd uintptr) bool
	one   [1][]byte // of TryWrite
	rest  [][]byte  // what was not taken yet
	off   int       // how much of rest[0] was
	waits bool
	n     int
	err   error
}

// tryConn is a lane of plane tcp: a conn that can write without waiting.
type tryConn struct{ *conn }

var _ transport.TryWriter = tryConn{}

// handle is what the transport's user gets.
func (c *conn) handle() transport.Conn {
	if c.tls != nil {
		return c
	}
	c.out.raw, _ = c.raw.SyscallConn() // fails only without a socket
	c.out.f = c.out.attempt
	return tryConn{c}
}

// TryWrite implements transport.TryWriter.
func (c tryConn) TryWrite(p []byte) (int, error) {
	if err := c.gate.Enter(); err != nil {
		return 0, err
	}
	c.out.one[0] = p
	n, err := c.out.run(c.out.one[:], false)
	c.out.one[0] = nil
	return c.wrote(n, err)
}

// TryWriteBuffers implements transport.TryWriter.
func (c tryConn) TryWriteBuffers(bufs [][]byte) (int, error) {
	if err := c.gate.Enter(); err != nil {
		return 0, err
	}
	n, err := c.out.run(bufs, false)
	return c.wrote(n, err)
}

// write sends all of bufs, or fails.
func (v *vector) write(_ *net.TCPConn, bufs [][]byte) (int, error) { return v.run(bufs, true) }

func (v *vector) run(bufs [][]byte, waits bool) (int, error) {
	v.rest, v.off, v.waits, v.n, v.err = bufs, 0, waits, 0, nil
	v.took(0)
	err := v.raw.Write(v.f)
	v.rest = nil
	if err == nil {
		err = v.err
	}
	return v.n, err
}

// attempt writes what fits. It says false if there is more, and the write may wait.
func (v *vector) attempt(fd uintptr) bool {
	for len(v.rest) > 0 {
		n, want, err := v.send(int(fd), v.rest, v.off)
		switch err {
		case nil:
			v.n += n
			v.took(n)
			if n < want && !v.waits {
				return true // the socket is full
			}
		case syscall.EINTR:
		case syscall.EAGAIN:
			return !v.waits
		default:
			v.err = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}

// took moves rest past n bytes, and past segments that are empty.
func (v *vector) took(n int) {
	for n += v.off; len(v.rest) > 0 && n >= len(v.rest[0]); v.rest = v.rest[1:] {
		n -= len(v.rest[0])
	}
	v.off = n
}

// sendOne is one write call of the first segment.
func sendOne(fd int, rest [][]byte, off int) (n, want int, err error) {
	p := rest[0][off:]
	n, err = syscall.Write(fd, p)
	return n, len(p), err
}
