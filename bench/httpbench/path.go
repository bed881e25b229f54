package httpbench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/discovery"
)

// Laneway's requests travel over one TCP connection from the frontend to each worker process, and are acknowledged, as
// they are on any request path. A request is
//
//	length u32 | number u64 | id length u16 | id | terms length u16 | terms | payload
//
// and its answer length u32 | number u64 | answer u8 | reason.
const (
	maxPathFrame = 64 << 10
	// pathTimeout bounds one write; a process that does not read for so long is broken.
	pathTimeout = 10 * time.Second
)

// pathConn is one end of a connection. write may be called concurrently.
type pathConn struct {
	conn net.Conn
	mu   sync.Mutex
	buf  []byte
}

func (c *pathConn) write(fill func(b []byte) []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = fill(append(c.buf[:0], 0, 0, 0, 0))
	if len(c.buf)-4 > maxPathFrame {
		return &discovery.SizeError{Size: len(c.buf) - 4, Max: maxPathFrame}
	}
	binary.BigEndian.PutUint32(c.buf, uint32(len(c.buf)-4))
	if err := c.conn.SetWriteDeadline(time.Now().Add(pathTimeout)); err != nil {
		return err
	}
	_, err := c.conn.Write(c.buf)
	return err
}

// readPath reads frames until the connection ends; each owns what it is given.
func readPath(conn net.Conn, least int, each func(number uint64, b []byte) error) error {
	r := bufio.NewReader(conn)
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(head[:]))
		if n < 8+least || n > maxPathFrame {
			return fmt.Errorf("a message of %d bytes on the request path", n)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		if err := each(binary.BigEndian.Uint64(b), b[8:]); err != nil {
			return err
		}
	}
}

func appendPart(b []byte, part []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(part))), part...)
}

func cutPart(b []byte) (part, rest []byte, err error) {
	if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
		return nil, nil, errors.New("a request on the request path is cut")
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	return b[2:n:n], b[n:], nil
}

// pathServer is a worker process's end: a discovery.Deliverer that serves one worker.
type pathServer struct {
	ln  net.Listener
	log *slog.Logger
	wg  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func listenPath(ctx context.Context, log *slog.Logger) (*pathServer, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &pathServer{ln: ln, log: log, conns: map[net.Conn]bool{}}, nil
}

func (s *pathServer) address() string { return s.ln.Addr().String() }

// Deliver implements discovery.Deliverer.
func (s *pathServer) Deliver(context.Context, string, discovery.Request) (discovery.Reply, error) {
	return discovery.Reply{}, discovery.ErrNoResponders
}

// Serve implements discovery.Deliverer, once. The handler is called by the reader of a connection.
func (s *pathServer) Serve(_ context.Context, _ discovery.Worker, h discovery.Handler) (discovery.Service, error) {
	s.wg.Go(func() { // ends with the listener
		for {
			conn, err := s.ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			if s.closed {
				_ = conn.Close()
			} else {
				s.conns[conn] = true
			}
			s.mu.Unlock()
			s.wg.Go(func() { // ends with the connection
				defer conn.Close()
				if err := s.serve(conn, h); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					s.log.Error("the request path has ended", "error", err)
				}
			})
		}
	})
	return s, nil
}

func (s *pathServer) serve(conn net.Conn, h discovery.Handler) error {
	c := &pathConn{conn: conn}
	return readPath(conn, 4, func(number uint64, b []byte) error {
		id, b, err := cutPart(b)
		if err != nil {
			return err
		}
		terms, payload, err := cutPart(b)
		if err != nil {
			return err
		}
		reply := h(context.Background(), discovery.Request{ID: string(id), Terms: terms, Payload: payload})
		return c.write(func(b []byte) []byte {
			b = append(binary.BigEndian.AppendUint64(b, number), byte(reply.Answer))
			return append(b, reply.Reason...)
		})
	})
}

// Drain implements discovery.Service: handlers do not wait, so nothing is queued.
func (s *pathServer) Drain(context.Context) error { return nil }

// Close implements discovery.Deliverer.
func (s *pathServer) Close() error {
	err := s.ln.Close()
	s.mu.Lock()
	already := s.closed
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // its reader may have closed it before
	}
	s.mu.Unlock()
	s.wg.Wait()
	if already {
		return nil
	}
	return err
}

// pathClient is the frontend's end: a discovery.Deliverer to all worker processes. It is connected before it is used.
type pathClient struct {
	conns map[string]*pathLine // by worker id
	wg    sync.WaitGroup
}

// pathLine is the connection to one worker process, with who waits for an answer.
type pathLine struct {
	pathConn
	waiting sync.Mutex // guards what follows
	number  uint64
	calls   map[uint64]chan discovery.Reply
	err     error
}

func (p *pathClient) connect(ctx context.Context, worker, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	l := &pathLine{pathConn: pathConn{conn: conn}, calls: map[uint64]chan discovery.Reply{}}
	if p.conns == nil {
		p.conns = map[string]*pathLine{}
	}
	p.conns[worker] = l
	p.wg.Go(func() { // ends with the connection
		err := readPath(conn, 1, func(number uint64, b []byte) error {
			l.waiting.Lock()
			call := l.calls[number]
			delete(l.calls, number)
			l.waiting.Unlock()
			if call != nil {
				call <- discovery.Reply{Answer: discovery.Answer(b[0]), Reason: string(b[1:])}
			}
			return nil
		})
		l.waiting.Lock()
		defer l.waiting.Unlock()
		l.err = err
		for _, call := range l.calls {
			close(call)
		}
		l.calls = nil
	})
	return nil
}

// Deliver implements discovery.Deliverer.
func (p *pathClient) Deliver(ctx context.Context, worker string, req discovery.Request) (discovery.Reply, error) {
	l := p.conns[worker]
	if l == nil {
		return discovery.Reply{}, discovery.ErrNoResponders
	}
	call := make(chan discovery.Reply, 1)
	l.waiting.Lock()
	if l.err != nil {
		l.waiting.Unlock()
		return discovery.Reply{}, fmt.Errorf("%w: %w", discovery.ErrUnavailable, l.err)
	}
	l.number++
	number := l.number
	l.calls[number] = call
	l.waiting.Unlock()
	forget := func() {
		l.waiting.Lock()
		defer l.waiting.Unlock()
		delete(l.calls, number)
	}
	err := l.write(func(b []byte) []byte {
		b = binary.BigEndian.AppendUint64(b, number)
		b = appendPart(b, []byte(req.ID))
		b = appendPart(b, req.Terms)
		return append(b, req.Payload...)
	})
	if err != nil {
		forget()
		return discovery.Reply{}, fmt.Errorf("%w: %w", discovery.ErrUnavailable, err)
	}
	select {
	case reply, ok := <-call:
		if !ok {
			return discovery.Reply{}, discovery.ErrUnavailable
		}
		return reply, nil
	case <-ctx.Done():
		forget()
		return discovery.Reply{}, context.Cause(ctx)
	}
}

// Serve implements discovery.Deliverer.
func (p *pathClient) Serve(context.Context, discovery.Worker, discovery.Handler) (discovery.Service, error) {
	return nil, errors.New("httpbench: a frontend serves no worker")
}

// Close implements discovery.Deliverer.
func (p *pathClient) Close() error {
	for _, l := range p.conns {
		_ = l.conn.Close() // its reader tells who waits
	}
	p.wg.Wait()
	return nil
}
