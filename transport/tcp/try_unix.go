//go:build unix

package tcp

import (
	"os"
	"syscall"

	"github.com/laneway-ai/laneway/transport"
)

// tryWriter keeps what TryWrite needs, so that it allocates nothing.
type tryWriter struct {
	raw syscall.RawConn
	f   func(fd uintptr) bool
	p   []byte
	n   int
	err error
}

// tryConn is a lane of plane tcp: a conn that can write without waiting.
type tryConn struct{ *conn }

var _ transport.TryWriter = tryConn{}

// handle is what the transport's user gets.
func (c *conn) handle() transport.Conn {
	if c.tls != nil {
		return c
	}
	raw, err := c.raw.SyscallConn()
	if err != nil {
		return c
	}
	c.try.raw = raw
	c.try.f = c.try.attempt
	return tryConn{c}
}

// TryWrite implements transport.TryWriter.
func (c tryConn) TryWrite(p []byte) (int, error) {
	if err := c.gate.Enter(); err != nil {
		return 0, err
	}
	n, err := c.try.write(p)
	return c.wrote(n, err)
}

func (w *tryWriter) write(p []byte) (int, error) {
	w.p, w.n, w.err = p, 0, nil
	err := w.raw.Write(w.f)
	w.p = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}

// attempt writes what fits and always says true: do not wait.
func (w *tryWriter) attempt(fd uintptr) bool {
	for len(w.p) > 0 {
		n, err := syscall.Write(int(fd), w.p)
		switch err {
		case nil:
			w.n += n
			w.p = w.p[n:]
			if len(w.p) > 0 {
				return true // a short write: the socket is full
			}
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			w.err = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}
