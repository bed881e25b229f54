package planebench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// drainTimeout bounds how long responses may take to end after Stop; an engine sees it at its next pass.
const drainTimeout = 15 * time.Second

// load is the closed loop of one frontend process.
type load struct {
	cfg   childConfig
	clock clock
	sink  bool
	front frontPlane
	nodes []transport.NodeID // by worker process
	paths []*requestConn     // by worker process
	slots []*slot
	queue chan *slot // sink: slots that open their next response
	// retire takes slots that a sink has found at their end for good.
	retire chan *slot
	tell   func(message) // to the parent

	stopping  atomic.Bool
	measuring atomic.Bool
	windowAt  atomic.Int64
	completed atomic.Uint64
	inWindow  atomic.Uint64 // completed when the window began
	asked     atomic.Bool   // the parent wants to be told of enough
	enough    atomic.Bool   // was told
	warm      atomic.Bool   // the parent was told that the warm-up is over
	unstarted atomic.Int64  // slots whose first response has not ended

	delays, firstDelays hist

	mu     sync.Mutex
	ttft   []float64
	itl    []float64
	errors int
	wrong  int
	notes  []string // of the first few errors and wrong records

	wg   sync.WaitGroup // slots, opener, readers of the request paths
	done chan struct{}  // closed when all slots have come to rest
}

// maxNotes bounds the texts that a run keeps of what went wrong.
const maxNotes = 5

// connectPlane makes every worker process known, waits for its lanes, and opens the request paths.
func (f *load) connectPlane(ctx context.Context) error {
	for i, w := range f.cfg.Workers {
		id, err := transport.ParseNodeID(w.Descriptor.ID)
		if err != nil {
			return err
		}
		if err := f.front.add(ctx, w.Descriptor); err != nil {
			return fmt.Errorf("worker process %d cannot be reached: %w", i, err)
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.Requests)
		if err != nil {
			return fmt.Errorf("request path to worker process %d: %w", i, err)
		}
		f.nodes = append(f.nodes, id)
		path := &requestConn{conn: conn}
		f.paths = append(f.paths, path)
		f.wg.Go(func() { f.readRefusals(path) })
	}
	return nil
}

// readRefusals ends the responses whose requests a worker has refused.
func (f *load) readRefusals(c *requestConn) {
	r := bufio.NewReader(c.conn)
	buf := make([]byte, maxRequest)
	for {
		b, err := readFrame(r, buf)
		if err != nil {
			return // the worker process has gone, or this one closes: the plane tells what became of the responses
		}
		id := binary.BigEndian.Uint64(b)
		f.note(fmt.Sprintf("response %x was refused: %s", id, b[8:]))
		for _, s := range f.slots {
			if s.index == int(id>>32)-1 {
				if res := s.response(); res != nil {
					res.Kill()
				}
			}
		}
	}
}

// makeSlots spreads this frontend's share of the load over the engines.
func (f *load) makeSlots() {
	l := f.cfg.Load
	processes := len(f.cfg.Workers)
	for i := f.cfg.Index; i < l.Concurrency; i += f.cfg.Frontends {
		engine := i % l.Engines
		s := &slot{f: f, index: i, process: engine % processes, engine: engine / processes, first: true,
			want: firstLength(i, l)}
		f.slots = append(f.slots, s)
	}
	f.unstarted.Store(int64(len(f.slots)))
	f.queue = make(chan *slot, len(f.slots))
	f.retire = make(chan *slot, len(f.slots))
	f.done = make(chan struct{})
}

// firstLength spreads the lengths of the first responses over 1..osl, at each engine, so that responses do not end in
// waves.
func firstLength(index int, l Load) int {
	return 1 + int(int64(index)*int64(l.OSL)/int64(l.Concurrency))
}

// start begins the load. It ends when stop has been called and every slot has come to rest.
func (f *load) start(ctx context.Context) {
	if f.sink {
		for _, s := range f.slots {
			f.queue <- s
		}
		f.wg.Go(func() {
			defer close(f.done)
			f.openLoop(ctx)
		})
		return
	}
	var slots sync.WaitGroup
	for _, s := range f.slots {
		slots.Go(func() { s.pull(ctx) })
	}
	f.wg.Go(func() {
		defer close(f.done)
		slots.Wait()
	})
}

// openLoop opens the next responses of slots that are consumed by a sink, so that no reader of a lane does it.
func (f *load) openLoop(ctx context.Context) {
	for left := len(f.slots); left > 0; {
		select {
		case s := <-f.queue:
			s.release()
			if !s.open(ctx) {
				left--
			}
		case s := <-f.retire:
			s.release()
			left--
		case <-ctx.Done():
			return
		}
	}
}

// firstEnded notes that a slot's first response has ended, which ends the warm-up when it was the last one and no
// number of responses was asked for.
func (f *load) firstEnded() {
	if f.unstarted.Add(-1) == 0 && f.cfg.Warmup == 0 {
		f.steady()
	}
}

// warmed ends the warm-up when so many responses have ended as were asked for. A slot that failed stays empty, so when
// all have the warm-up is over too.
func (f *load) warmed() {
	if f.cfg.Warmup == 0 {
		return
	}
	f.mu.Lock()
	failed := f.errors
	f.mu.Unlock()
	if int(f.completed.Load())+failed >= f.cfg.Warmup || failed >= len(f.slots) {
		f.steady()
	}
}

// steady tells the parent, once, that the warm-up is over.
func (f *load) steady() {
	if f.warm.CompareAndSwap(false, true) {
		f.tell(message{Op: opSteady})
	}
}

// begin opens the window.
func (f *load) begin() {
	f.delays.reset()
	f.firstDelays.reset()
	f.mu.Lock()
	f.ttft, f.itl = nil, nil
	f.mu.Unlock()
	f.inWindow.Store(f.completed.Load())
	f.windowAt.Store(f.clock.now())
	f.measuring.Store(true)
}

// finish closes the window. A response that was opened in it and has no record yet counts with its age.
func (f *load) finish() *Consumer {
	f.measuring.Store(false)
	now, from := f.clock.now(), f.windowAt.Load()
	c := &Consumer{Delay: f.delays.snapshot(), FirstDelay: f.firstDelays.snapshot()}
	f.mu.Lock()
	c.TTFT, c.ITL = slices.Clone(f.ttft), slices.Clone(f.itl)
	f.mu.Unlock()
	for _, s := range f.slots {
		if at := s.waiting.Load(); at >= from && at > 0 {
			c.TTFT = append(c.TTFT, float64(now-at))
			c.Censored++
		}
	}
	return c
}

// askEnough has the parent told of enough, at once when it is there. Before it is asked nothing is told: the parent,
// which waits for other processes to begin, would not hear it.
func (f *load) askEnough() {
	f.asked.Store(true)
	f.maybeEnough()
}

// maybeEnough tells the parent, once, that this frontend's share of --request-count has completed in the window.
func (f *load) maybeEnough() {
	if f.cfg.Requests > 0 && f.asked.Load() && f.measuring.Load() &&
		f.completed.Load()-f.inWindow.Load() >= uint64(f.cfg.Requests) && f.enough.CompareAndSwap(false, true) {
		f.tell(message{Op: opEnough})
	}
}

// stop asks the engines to finish what runs, and waits until every response has ended. What has not by then is an
// error.
func (f *load) stop() *Totals {
	f.stopping.Store(true)
	if _, peer := f.front.(opener); peer {
		for _, p := range f.paths {
			// where it fails its worker process has gone, and its responses tell
			_ = p.send(request{id: uint64(f.cfg.Index), engine: stopFrom})
		}
	}
	for _, s := range f.slots {
		if res := s.response(); res != nil {
			res.Stop()
		}
	}
	timeout := time.NewTimer(drainTimeout)
	defer timeout.Stop()
	again := time.NewTicker(50 * time.Millisecond) // a response that was minted while stop went round
	defer again.Stop()
	for rest := false; !rest; {
		select {
		case <-f.done:
			rest = true
		case <-again.C:
			for _, s := range f.slots {
				if res := s.response(); res != nil {
					res.Stop()
				}
			}
		case <-timeout.C:
			f.giveUp()
			rest = true
		}
	}
	t := &Totals{Completed: f.completed.Load(), Taken: f.taken(), Planes: make(map[string]int)}
	for _, l := range f.front.Stats().Lanes { // of a peer there are none
		if l.Up {
			t.Planes[l.Plane]++
		}
	}
	f.mu.Lock()
	t.Errors, t.Wrong, t.Notes = f.errors, f.wrong, f.notes
	f.mu.Unlock()
	return t
}

// giveUp counts and kills what has not ended after Stop.
func (f *load) giveUp() {
	for _, s := range f.slots {
		if res := s.response(); res != nil && s.over.CompareAndSwap(false, true) {
			f.responseError(fmt.Errorf("slot %d: its response did not end in %v after Stop", s.index, drainTimeout))
			res.Kill()
		}
	}
}

// close ends the request paths and joins their readers.
func (f *load) close() error {
	var errs []error
	for _, p := range f.paths {
		if err := p.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	f.wg.Wait()
	return errors.Join(errs...)
}

func (f *load) taken() (n uint64) {
	for _, s := range f.slots {
		n += s.taken.Load()
	}
	return n
}

func (f *load) addTTFT(ns int64) {
	f.mu.Lock()
	f.ttft = append(f.ttft, float64(ns))
	f.mu.Unlock()
}

func (f *load) addITL(ns float64) {
	f.mu.Lock()
	f.itl = append(f.itl, ns)
	f.mu.Unlock()
}

func (f *load) responseError(err error) {
	f.mu.Lock()
	f.errors++
	f.mu.Unlock()
	f.note(err.Error())
}

func (f *load) wrongRecord(text string) {
	f.mu.Lock()
	f.wrong++
	f.mu.Unlock()
	f.note(text)
}

func (f *load) note(text string) {
	f.mu.Lock()
	if len(f.notes) < maxNotes {
		f.notes = append(f.notes, text)
	}
	f.mu.Unlock()
}

// serveRequests takes the requests of one frontend process until its connection ends.
func (r *workerRole) serveRequests(conn net.Conn) error {
	c := &requestConn{conn: conn}
	in := bufio.NewReaderSize(conn, 64<<10)
	buf := make([]byte, maxRequest)
	for {
		b, err := readFrame(in, buf)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		q, err := parseRequest(b)
		if err != nil {
			return err
		}
		if q.engine == stopFrom {
			if err := r.stopAt(q.id); err != nil {
				return err
			}
			continue
		}
		w, err := r.worker.attach(q.terms)
		if err != nil {
			if err := c.refuse(q.id, err.Error()); err != nil {
				return err
			}
			continue
		}
		if err := r.run(q, w); err != nil {
			return err
		}
	}
}
