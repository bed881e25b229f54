package peers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/transport"
)

// slots is how many responses may be open on one bare connection.
const slots = 1 << 16

// Bare is the floor: one connection of the plane's own transport from each frontend to each worker process, on which
// what a pass leaves is one write. It has no flow control, no cancel, no failover, no second lane, no identity and no
// replay. Pulled, each record is copied and wakes the goroutine of its response; as a sink, it is handed out in the
// reader's own buffer.
func Bare(plane string) planebench.Peer {
	return planebench.Peer{
		Name: "bare-" + plane, Deliveries: planebench.Deliveries(), Over: plane,
		Worker: func(cfg planebench.PeerConfig, serve func([]byte, planebench.PeerWriter) error) (planebench.PeerWorker,
			error) {
			w := &bareWorker{cfg: cfg, serve: serve}
			w.list.Store(new([]*bareConn))
			w.ctx, w.cancel = context.WithCancel(context.Background())
			return w, nil
		},
		Frontend: func(cfg planebench.PeerConfig) (planebench.PeerFrontend, error) {
			return &bareFrontend{cfg: cfg, conns: map[int]*bareConn{}}, nil
		},
	}
}

// bareConn is a connection at either end, with what waits to be written.
type bareConn struct {
	conn transport.Conn
	// wake lets the writer go, nil where writes do not wait (plane tcp): who flushes writes.
	wake chan struct{}
	done chan struct{} // the reader has ended

	mu      sync.Mutex
	out     []byte
	spare   []byte
	writing bool
	err     error

	// Of a frontend: the open responses by slot, and the slots that are free.
	table []atomic.Pointer[bareResponse]
	free  chan uint32
}

// newBareConn begins the writer where one is needed; wg joins it. It ends when done is closed.
func newBareConn(conn transport.Conn, wg *sync.WaitGroup) *bareConn {
	c := &bareConn{conn: conn, done: make(chan struct{})}
	if _, direct := conn.(transport.TryWriter); !direct {
		c.wake = make(chan struct{}, 1)
		wg.Go(func() {
			for {
				select {
				case <-c.wake:
					c.write()
				case <-c.done:
					return
				}
			}
		})
	}
	return c
}

// put adds a frame to the next write: slot u32 | end bit and length u32 | body.
func (c *bareConn) put(slot uint32, flag uint32, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := binary.BigEndian.AppendUint32(c.out, slot)
	c.out = appendFrame(b, body, flag)
	return c.err
}

func (c *bareConn) flush() {
	if c.wake == nil {
		c.write()
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes all that waits, and what comes meanwhile, unless somebody does already.
func (c *bareConn) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing {
		return
	}
	c.writing = true
	for len(c.out) > 0 && c.err == nil {
		b := c.out
		c.out = c.spare[:0]
		c.mu.Unlock()
		_, err := c.conn.Write(b)
		c.mu.Lock()
		c.spare, c.err = b, err
	}
	c.writing = false
}

// read hands out frames, in the reader's buffer, until the connection ends.
func (c *bareConn) read(take func(slot uint32, end bool, body []byte) error) error {
	defer close(c.done)
	buf := make([]byte, 256<<10)
	n := 0
	for {
		m, err := c.conn.Read(buf[n:])
		n += m
		b := buf[:n]
		for len(b) >= 4 {
			body, rest, end, ok, err := nextFrame(b[4:])
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if err := take(binary.BigEndian.Uint32(b), end, body); err != nil {
				return err
			}
			b = rest
		}
		n = copy(buf, b)
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		if err != nil {
			return err
		}
	}
}

type bareWorker struct {
	cfg    planebench.PeerConfig
	serve  func([]byte, planebench.PeerWriter) error
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ln     transport.Listener

	mu     sync.Mutex
	list   atomic.Pointer[[]*bareConn]
	closed bool
}

func (w *bareWorker) Listen(ctx context.Context) (string, error) {
	ln, err := w.cfg.Transport.Listen(ctx, "127.0.0.1:0", 1)
	if err != nil {
		return "", err
	}
	w.ln = ln
	w.wg.Go(func() { // ends with the listener
		for {
			conn, err := ln.Accept(w.ctx)
			if err != nil {
				return
			}
			w.wg.Go(func() { w.serveConn(conn) })
		}
	})
	return ln.Endpoints()[0].String(), nil
}

// serveConn takes the requests of a frontend.
func (w *bareWorker) serveConn(conn transport.Conn) {
	defer func() { _ = conn.Close() }() // it has ended
	c := newBareConn(conn, &w.wg)
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		close(c.done)
		return
	}
	list := append([]*bareConn{c}, *w.list.Load()...)
	w.list.Store(&list)
	w.mu.Unlock()
	err := c.read(func(slot uint32, _ bool, body []byte) error { return w.serve(body, &bareWriter{c: c, slot: slot}) })
	if err != nil && !errors.Is(err, io.EOF) && w.ctx.Err() == nil {
		w.cfg.Log.Debug("a connection has ended", "error", err)
	}
}

// Flush makes one write of what the pass has put.
func (w *bareWorker) Flush() {
	for _, c := range *w.list.Load() {
		c.flush()
	}
}

func (w *bareWorker) Close() error {
	w.cancel()
	var err error
	if w.ln != nil {
		err = w.ln.Close()
	}
	w.mu.Lock()
	w.closed = true
	list := *w.list.Load()
	w.mu.Unlock()
	for _, c := range list {
		_ = c.conn.Close() // its reader may have closed it before
	}
	w.wg.Wait()
	return err
}

type bareWriter struct {
	c    *bareConn
	slot uint32
}

func (w *bareWriter) TryPut(rec []byte) error          { return w.c.put(w.slot, 0, rec) }
func (w *bareWriter) PutComplete(trailer []byte) error { return w.c.put(w.slot, endBit, trailer) }

// OnWritable never has anything to say: TryPut always has room.
func (w *bareWriter) OnWritable(func()) {}

func (w *bareWriter) Err() error {
	select {
	case <-w.c.done:
		return errClosed
	default:
		return nil
	}
}

type bareFrontend struct {
	cfg planebench.PeerConfig
	wg  sync.WaitGroup

	mu    sync.Mutex
	conns map[int]*bareConn // by worker process
}

func (f *bareFrontend) Connect(ctx context.Context, worker int, address string) error {
	conn, err := f.cfg.Transport.Dial(ctx, transport.DialRequest{Address: address})
	if err != nil {
		return err
	}
	c := newBareConn(conn, &f.wg)
	c.table, c.free = make([]atomic.Pointer[bareResponse], slots), make(chan uint32, slots)
	for i := range uint32(slots) {
		c.free <- i
	}
	f.mu.Lock()
	f.conns[worker] = c
	f.mu.Unlock()
	f.wg.Go(func() { // ends with the connection
		err := c.read(func(slot uint32, end bool, body []byte) error {
			if slot >= slots {
				return fmt.Errorf("a record for slot %d of %d", slot, slots)
			}
			if r := c.table[slot].Load(); r != nil {
				r.take(end, body)
			}
			return nil
		})
		for i := range c.table {
			if r := c.table[i].Load(); r != nil {
				r.fail(err)
			}
		}
	})
	return nil
}

func (f *bareFrontend) Open(_ context.Context, worker int, request []byte) (planebench.PeerResponse, error) {
	f.mu.Lock()
	c := f.conns[worker]
	f.mu.Unlock()
	if c == nil {
		return nil, errClosed
	}
	select {
	case slot := <-c.free:
		r := &bareResponse{c: c, slot: slot, wake: make(chan struct{}, 1)}
		if f.cfg.Delivery == planebench.Sink {
			r.request = append([]byte(nil), request...) // it goes out when there is a sink
			return r, nil
		}
		return r, r.send(request)
	default:
		return nil, fmt.Errorf("%d responses are open", slots)
	}
}

func (f *bareFrontend) Close() error {
	f.mu.Lock()
	conns := f.conns
	f.conns = nil
	f.mu.Unlock()
	for _, c := range conns {
		_ = c.conn.Close() // its reader tells the responses
	}
	f.wg.Wait()
	return nil
}
