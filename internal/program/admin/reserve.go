package admin

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// reserved is how many files are kept for the admin port: a probe of each kind, a scrape, and a person who looks for
// what has the others.
const reserved = 8

// reserve is a listener that still accepts when the process has no file left: it keeps some that nobody uses, and gives
// one up for each connection that would find none. A process that serves at its limit of files must not be killed
// because its health cannot be asked for.
type reserve struct {
	net.Listener

	mu     sync.Mutex
	spare  []*os.File
	closed bool
}

func newReserve(l net.Listener) *reserve {
	r := &reserve{Listener: l}
	r.refill()
	return r
}

// Accept implements net.Listener.
func (r *reserve) Accept() (net.Conn, error) {
	for {
		c, err := r.Listener.Accept()
		switch {
		case err == nil:
			return &reservedConn{Conn: c, reserve: r}, nil
		case !noFiles(err) || !r.giveUp():
			return nil, err
		}
	}
}

// Close implements net.Listener.
func (r *reserve) Close() error {
	r.mu.Lock()
	spare := r.spare
	r.spare, r.closed = nil, true
	r.mu.Unlock()
	for _, f := range spare {
		_ = f.Close() // only held
	}
	return r.Listener.Close()
}

// giveUp makes a descriptor free; false when there is none to give.
func (r *reserve) giveUp() bool {
	r.mu.Lock()
	n := len(r.spare) - 1
	if n < 0 {
		r.mu.Unlock()
		return false
	}
	f := r.spare[n]
	r.spare = r.spare[:n]
	r.mu.Unlock()
	_ = f.Close()
	return true
}

// refill takes back what was given up, as far as there are files.
func (r *reserve) refill() {
	for {
		r.mu.Lock()
		full := r.closed || len(r.spare) >= reserved
		r.mu.Unlock()
		if full {
			return
		}
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // the end of the next connection tries again
		}
		r.mu.Lock()
		if full = r.closed || len(r.spare) >= reserved; !full {
			r.spare = append(r.spare, f)
		}
		r.mu.Unlock()
		if full {
			_ = f.Close()
			return
		}
	}
}

// reservedConn gives its descriptor back to the reserve.
type reservedConn struct {
	net.Conn
	reserve *reserve
}

func (c *reservedConn) Close() error {
	err := c.Conn.Close()
	c.reserve.refill()
	return err
}

func noFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Probe is Probe of the server by its own process. The process's side of the connection takes a file of the reserve
// where there is no other.
func (s *Server) Probe(ctx context.Context, path string) error {
	err := Probe(ctx, s.addr.String(), path)
	for noFiles(err) && s.reserve.giveUp() { // again while another takes what was given up
		err = Probe(ctx, s.addr.String(), path)
	}
	s.reserve.refill()
	return err
}
