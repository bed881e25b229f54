package planebench

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux"
)

// readyTimeout bounds how long a frontend tries to reach the workers.
const readyTimeout = 20 * time.Second

// workerRole is a worker process.
type workerRole struct {
	*child
	worker  workPlane
	engines []*engine
	ln      net.Listener
	passes  atomic.Uint64
	late    atomic.Uint64
	made    atomic.Uint64
	stopped []atomic.Bool // by frontend
	stop    context.CancelFunc
	wg      sync.WaitGroup // engines, accept loop, connections

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func (r *workerRole) start(ctx context.Context) (message, error) {
	ctx, r.stop = context.WithCancel(ctx)
	var err error
	if r.worker, err = r.workPlane(r.servePeer); err != nil {
		return message{}, err
	}
	if r.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return message{}, err
	}
	c := newClock()
	r.stopped = make([]atomic.Bool, r.cfg.Frontends)
	for i := range r.cfg.engines() {
		e := &engine{worker: r.worker, clock: c, interval: r.cfg.Load.Interval, phase: r.cfg.phase(i),
			passes: &r.passes, made: &r.made, late: &r.late, wake: make(chan struct{}, 1)}
		r.engines = append(r.engines, e)
		r.wg.Go(func() { e.run(ctx) })
	}
	if err := r.worker.Listen(ctx); err != nil {
		return message{}, err
	}
	r.conns = make(map[net.Conn]bool)
	r.wg.Go(r.accept)
	return message{Op: opReady, Worker: &workerPlace{Descriptor: r.worker.Descriptor(),
		Requests: r.ln.Addr().String()}}, nil
}

func (r *workerRole) accept() {
	for {
		conn, err := r.ln.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				r.log.Error("the request path has ended", "error", err)
			}
			return
		}
		r.mu.Lock()
		if r.closed {
			_ = conn.Close()
		} else {
			r.conns[conn] = true
		}
		r.mu.Unlock()
		r.wg.Go(func() {
			if err := r.serveRequests(conn); err != nil {
				r.log.Error("a request path has ended", "error", err)
			}
			_ = conn.Close()
		})
	}
}

func (r *workerRole) begin()           {}
func (r *workerRole) end() *Consumer   { return nil }
func (r *workerRole) finish() *Totals  { return &Totals{Records: r.peersOwn(r.made.Load())} }
func (r *workerRole) stats() mux.Stats { return r.worker.Stats() }
func (r *workerRole) count(u *Usage)   { u.Passes, u.Late = r.passes.Load(), r.late.Load() }

func (r *workerRole) close() error {
	r.stop()
	var errs []error
	if r.ln != nil {
		errs = append(errs, r.ln.Close())
	}
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		_ = c.Close() // its reader may have closed it before
	}
	r.mu.Unlock()
	if r.worker != nil {
		errs = append(errs, r.worker.Close())
	}
	r.wg.Wait()
	return errors.Join(errs...)
}

// frontendRole is a frontend process.
type frontendRole struct {
	*child
	load *load
	ctx  context.Context // of the load; ends with close
	stop context.CancelFunc
}

func (r *frontendRole) start(ctx context.Context) (message, error) {
	r.ctx, r.stop = context.WithCancel(ctx)
	front, err := r.frontPlane()
	if err != nil {
		return message{}, err
	}
	r.load = &load{cfg: r.cfg, clock: newClock(), sink: r.cfg.Delivery == Sink, front: front,
		tell: func(m message) { _ = r.out.Send(m) }} // a parent that is gone ends the child by its standard input
	wait, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r.load.makeSlots()
	if err := r.load.connectPlane(wait); err != nil {
		return message{}, err
	}
	return message{Op: opReady}, nil
}

func (r *frontendRole) begin()         { r.load.begin() }
func (r *frontendRole) end() *Consumer { return r.load.finish() }

func (r *frontendRole) finish() *Totals {
	t := r.load.stop()
	t.Records = r.peersOwn(t.Taken)
	return t
}

// peersOwn is n where a peer runs, whose records nobody but the harness counts.
func (c *child) peersOwn(n uint64) uint64 {
	if c.peer == nil {
		return 0
	}
	return n
}

func (r *frontendRole) stats() mux.Stats { return r.load.front.Stats() }

func (r *frontendRole) count(u *Usage) {
	u.Taken, u.Completed = r.load.taken(), r.load.completed.Load()
}

func (r *frontendRole) close() error {
	r.stop()
	if r.load == nil {
		return nil
	}
	return errors.Join(r.load.front.Close(), r.load.close())
}
