package planebench

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// The request path: a TCP connection from each frontend to each worker process. A request is
//
//	length u32 | id u64 | engine u32 | records u32 | bytes u32 | terms
//
// and a refusal, the only thing that comes back, length u32 | id u64 | text. A frontend that stops a peer says so with
// its number as the id and the engine stopFrom; requests to a peer travel the peer's own way.
const (
	requestHead = 20
	maxRequest  = 4 << 10
	// sendTimeout bounds one request's write; a worker process that does not read for so long is broken.
	sendTimeout = 10 * time.Second
)

// request is what a frontend asks of an engine.
type request struct {
	id      uint64
	engine  int // of the process
	records int
	bytes   int
	terms   []byte
}

// requestConn is one end of a request path. send may be called concurrently.
type requestConn struct {
	conn net.Conn
	mu   sync.Mutex
	buf  []byte
}

func (c *requestConn) send(q request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := binary.BigEndian.AppendUint32(c.buf[:0], uint32(requestHead+len(q.terms)))
	c.buf = appendRequest(b, q)
	return c.write()
}

func (c *requestConn) refuse(id uint64, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	text = text[:min(len(text), 1024)]
	b := binary.BigEndian.AppendUint32(c.buf[:0], uint32(8+len(text)))
	b = binary.BigEndian.AppendUint64(b, id)
	c.buf = append(b, text...)
	return c.write()
}

func (c *requestConn) write() error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, err := c.conn.Write(c.buf)
	return err
}

// readFrame reads one length-prefixed message into b and returns it.
func readFrame(r *bufio.Reader, b []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n < 8 || n > maxRequest {
		return nil, fmt.Errorf("a message of %d bytes on the request path", n)
	}
	b = b[:n]
	_, err := io.ReadFull(r, b)
	return b, err
}

// parseRequest reads a request; its terms are a part of b.
func parseRequest(b []byte) (request, error) {
	if len(b) < requestHead {
		return request{}, fmt.Errorf("a request of %d bytes", len(b))
	}
	return request{
		id: binary.BigEndian.Uint64(b), engine: int(binary.BigEndian.Uint32(b[8:])),
		records: int(binary.BigEndian.Uint32(b[12:])),
		bytes:   int(binary.BigEndian.Uint32(b[16:])), terms: b[requestHead:],
	}, nil
}
