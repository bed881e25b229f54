package transportbench

import (
	"io"
	"net"
	"slices"

	"github.com/laneway-ai/laneway/transport"
)

// pipeConn is a pipe as a lane.
type pipeConn struct{ net.Conn }

// WriteBuffers implements transport.Conn.
func (c pipeConn) WriteBuffers(bufs [][]byte) error {
	_, err := c.Write(slices.Concat(bufs...))
	return err
}

func (pipeConn) CloseWrite() error        { return nil }
func (pipeConn) Info() transport.ConnInfo { return transport.ConnInfo{} }

// skipping loses the first message, of 100 bytes.
type skipping struct{ io.ReadWriter }

var skipped = headLen + 100

func (s skipping) Read(p []byte) (int, error) {
	if skipped > 0 {
		n, err := io.ReadFull(s.ReadWriter, make([]byte, skipped))
		skipped -= n
		if err != nil {
			return 0, err
		}
	}
	return s.ReadWriter.Read(p)
}
