package refplane

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// Worker is the writing side. Methods may be called concurrently.
type Worker struct {
	side
	links map[uint64]*link        // by frontend; under mu
	list  atomic.Pointer[[]*link] // for Flush, which must not take mu for long
}

// link is a connection from a frontend, or with PerResponse the connection of one response.
type link struct {
	conn transport.Conn
	out  *out

	mu      sync.Mutex
	writers map[uint64]*Writer
	dead    bool
}

// NewWorker makes a worker; Listen opens it.
func NewWorker(cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{links: map[uint64]*link{}}
	w.init(cfg)
	w.list.Store(new([]*link))
	return w, nil
}

// Listen opens the worker to frontends. (With PerResponse nobody comes, but its descriptor names an address all the
// same.)
func (w *Worker) Listen(ctx context.Context) error { return w.listen(ctx, w.serve) }

// Descriptor says where the worker is. Call it after Listen.
func (w *Worker) Descriptor() discovery.Node {
	at := w.listener.Endpoints()[0].String()
	if _, port, err := net.SplitHostPort(at); err == nil && w.cfg.AdvertiseAddr != "" {
		at = net.JoinHostPort(strings.Trim(w.cfg.AdvertiseAddr, "[]"), port)
	}
	return discovery.Node{
		ID: w.cfg.Identity.ID.String(), Name: w.cfg.Name, WireMin: 1, WireMax: 1,
		Planes: []discovery.Plane{{Name: w.cfg.Plane, Endpoints: []string{at}}},
	}
}

// serve reads the connection of a frontend to its end.
func (w *Worker) serve(conn transport.Conn) {
	l := &link{conn: conn, out: newOut(w.cfg.Mode == PerRecord, w.cfg.Interval, &w.stats),
		writers: map[uint64]*Writer{}}
	ctx, cancel := context.WithCancel(w.ctx)
	var writer sync.WaitGroup
	writer.Go(func() { _ = l.out.run(ctx, conn, func() bool { return false }) }) // ends with ctx or the connection
	var number uint64
	in := newReader(conn)
	for {
		_, err := in.read(func(kind byte, id uint64, _ []byte) error {
			switch kind {
			case kindHello:
				number = id
				w.mu.Lock()
				w.links[id] = l
				w.relist()
				w.mu.Unlock()
				if err := l.out.put(kindHello, id, nil, nil); err != nil {
					return err
				}
				l.out.flush()
			case kindStop:
				l.stop(id)
			default:
				return fmt.Errorf("refplane: an unexpected frame of kind %d", kind)
			}
			return nil
		})
		if err != nil {
			break
		}
	}
	cancel()
	w.mu.Lock()
	if w.links[number] == l {
		delete(w.links, number)
		w.relist()
	}
	w.mu.Unlock()
	l.kill()
	w.drop(conn)
	writer.Wait()
}

// relist makes the list that Flush goes over. Called with mu held.
func (w *Worker) relist() {
	list := make([]*link, 0, len(w.links))
	for _, l := range w.links {
		list = append(list, l)
	}
	w.list.Store(&list)
}

// stop asks the writer of a response to finish.
func (l *link) stop(id uint64) {
	l.mu.Lock()
	wr := l.writers[id]
	l.mu.Unlock()
	if wr != nil {
		wr.stopping.Store(true)
	}
}

// kill ends all responses of a connection that has died.
func (l *link) kill() {
	l.mu.Lock()
	l.dead = true
	writers := l.writers
	l.writers = nil
	l.mu.Unlock()
	for _, wr := range writers {
		wr.lose()
	}
	l.out.close()
}

// add gives the link a response, false when it has died.
func (l *link) add(id uint64, wr *Writer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false
	}
	l.writers[id] = wr
	return true
}

func (l *link) remove(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.writers, id)
}

// Attach opens the response that terms name.
func (w *Worker) Attach(b []byte) (*Writer, error) {
	t, err := decodeTerms(b)
	if err != nil {
		return nil, err
	}
	if t.mode != w.cfg.Mode {
		return nil, fmt.Errorf("refplane: the frontend's mode is %s, this worker's %s", t.mode, w.cfg.Mode)
	}
	wr := &Writer{w: w, id: t.id}
	if t.mode == PerResponse {
		if err := w.callHome(t, wr); err != nil {
			return nil, err
		}
	} else {
		w.mu.Lock()
		wr.l = w.links[t.frontend]
		w.mu.Unlock()
		if wr.l == nil || !wr.l.add(t.id, wr) {
			return nil, &responseplane.Error{Kind: responseplane.EndRefused, Code: responseplane.CodeNoWorker,
				Text: "no connection from that frontend"}
		}
	}
	w.stats.opened.Add(1)
	w.stats.open.Add(1)
	return wr, nil
}

// callHome dials the frontend for one response; records wait until that is done.
func (w *Worker) callHome(t terms, wr *Writer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return responseplane.ErrClosed
	}
	wr.l = &link{out: newOut(false, 0, &w.stats), writers: map[uint64]*Writer{t.id: wr}}
	w.wg.Go(func() { // ends with the response
		defer wr.l.kill()
		conn, in, err := w.dial(t)
		if err != nil {
			if w.ctx.Err() == nil {
				w.cfg.Logger.Warn("a response is lost: its frontend cannot be dialled", "address", t.address, "error",
					err)
			}
			return
		}
		defer w.drop(conn)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		var reader sync.WaitGroup
		reader.Go(func() { // ends when the frontend has read the end and closed, or with the connection
			for {
				if _, err := in.read(func(kind byte, id uint64, _ []byte) error {
					if kind == kindStop {
						wr.l.stop(id)
					}
					return nil
				}); err != nil {
					cancel()
					return
				}
			}
		})
		wr.l.out.flush()
		if err := wr.l.out.run(ctx, conn, wr.ended.Load); err == nil {
			err = conn.CloseWrite()
			if err == nil {
				reader.Wait() // closing before the frontend has read everything would throw it away
			}
		}
		_ = conn.Close() // lets the reader go; drop follows
		reader.Wait()
	})
	return nil
}

const (
	// dialFor is how long a worker tries to call home, and dialPause how long it rests after its first failure, doubled
	// with each one: a frontend's queue of connections that are to be accepted is short.
	dialFor   = 20 * time.Second
	dialPause = 10 * time.Millisecond
)

// dial connects to a frontend for one response and waits for its answer: a connection that the frontend's queue had no
// room for looks like any other to who dialled it. It tries again when that fails. The connection is adopted.
func (w *Worker) dial(t terms) (conn transport.Conn, in *reader, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, dialFor)
	defer cancel()
	for pause := dialPause; ; pause *= 2 {
		if conn, in, err = w.knock(ctx, t); err == nil {
			return conn, in, nil
		}
		w.cfg.Logger.Debug("calling home failed", "address", t.address, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, err
		}
	}
}

// knock is one attempt of dial.
func (w *Worker) knock(ctx context.Context, t terms) (transport.Conn, *reader, error) {
	conn, err := w.cfg.Transport.Dial(ctx, transport.DialRequest{Address: t.address})
	if err != nil {
		return nil, nil, err
	}
	if err := w.adopt(conn); err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the read below
	defer stop()
	_, err = conn.Write(appendFrame(nil, kindHello, t.id, nil))
	in := newReader(conn)
	for known := false; err == nil && !known; {
		_, err = in.read(func(kind byte, id uint64, _ []byte) error {
			known = known || kind == kindHello && id == t.id
			return nil
		})
	}
	if err != nil {
		w.drop(conn)
		return nil, nil, err
	}
	return conn, in, nil
}

// Flush lets the writers take what was put (Batched).
func (w *Worker) Flush() {
	if w.cfg.Mode != Batched {
		return // each record has woken its writer
	}
	for _, l := range *w.list.Load() {
		if l.out.pending() {
			l.out.flush()
		}
	}
}

// Stats are the totals so far, in the shape of the plane's own.
func (w *Worker) Stats() responseplane.Stats { return w.stats.stats(w.cfg.Plane) }

// drainPoll is how often Drain looks: the counters of a plane without windows tell nobody when they reach zero.
const drainPoll = 5 * time.Millisecond

// Drain waits until no response is open and what was put has been written. It keeps nobody from attaching more.
func (w *Worker) Drain(ctx context.Context) error {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		if w.stats.open.Load() == 0 && w.idle() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *Worker) idle() bool {
	for _, l := range *w.list.Load() {
		if !l.out.idle() {
			return false
		}
	}
	return true
}
