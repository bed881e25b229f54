//go:build !unix

package tcp

import (
	"net"

	"github.com/laneway-ai/laneway/transport"
)

// vector keeps the slice of slices that package net changes. Lanes of this system have no TryWrite.
type vector struct{ bufs net.Buffers }

func (c *conn) handle() transport.Conn { return c }

// write sends all of bufs, or fails.
func (v *vector) write(raw *net.TCPConn, bufs [][]byte) (int, error) {
	kept := append(v.bufs[:0], bufs...)
	v.bufs = kept
	n, err := v.bufs.WriteTo(raw)
	clear(kept)
	v.bufs = kept[:0]
	return int(n), err
}
