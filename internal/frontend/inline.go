package frontend

import (
	"context"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend/outpath"
)

// inlineRecord is the largest record that a sink writes. With it a write is at most writeMax and an event of 6 bytes
// for each of the record's, which fits the connection's buffer whatever the client does.
const inlineRecord = 4 << 10

// inline is a feed whose records are written by the goroutine that brings them, while the exchange's goroutine is
// parked in next.
//
// The ResponseWriter and what else belongs to the exchange changes hands by open: while it is true the sink has them,
// and the connection does not wait; otherwise the exchange's goroutine has. A sink that is called when it has not, or
// when the client has left bytes, or a record is too large, says "not now", and the stream is pulled, with writes that
// wait, until it is empty: a slow client has its worker wait through the stream's window, as if there were no sink.
type inline struct {
	x      *exchange
	stream SinkStream
	conn   *outpath.Conn
	wake   chan struct{} // capacity 1: there is something to do for next
	signal func()        // notify, as a value
	begun  bool          // next has given records, and what comes before them has gone out; it is next's own

	mu      sync.Mutex // never held during a write that waits
	open    bool
	silent  bool
	written int   // of the records that the sink left, how many it wrote
	failed  error // of a write
}

// newInline sets the stream's sink.
func newInline(x *exchange, stream SinkStream, conn *outpath.Conn) *inline {
	p := &inline{x: x, stream: stream, conn: conn, wake: make(chan struct{}, 1)}
	if s, ok := stream.(PassStream); ok && x.server.cfg.OutPath == OutRing {
		p.signal = p.notify
		s.OnPass(p.passSink)
	} else {
		stream.OnRecords(p.sink)
	}
	return p
}

// next implements feed.
func (p *inline) next(ctx context.Context) ([][]byte, error) {
	for {
		recs, err := p.stream.NextBatch(ctx)
		if n := min(p.takeWritten(), len(recs)); n > 0 { // a stream that was killed meanwhile has lost them
			recs = recs[n:]
		}
		if len(recs) > 0 || err != nil {
			p.begun = true
			return recs, err
		}
		if err := p.park(ctx); err != nil {
			return nil, err
		}
	}
}

func (p *inline) takeWritten() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.written
	p.written = 0
	return n
}

// park leaves the writing to the sink until there is something to do, and takes it back.
func (p *inline) park(ctx context.Context) error {
	p.mu.Lock()
	if p.begun && !p.silent {
		p.conn.Inline(true)
		p.open = true
	}
	p.mu.Unlock()
	select {
	case <-p.wake:
	case <-ctx.Done():
	}
	err := ctx.Err() // also when both are so: a worker that never pauses must not hide it
	p.mu.Lock()
	held := 0
	if p.open {
		p.open = false
		p.conn.Inline(false)
		held = p.conn.Held()
	}
	failed := p.failed
	p.mu.Unlock()
	if failed == nil {
		failed = p.x.out.result(p.conn.Err()) // of a batch
	}
	if failed == nil && held > 0 {
		failed = p.x.out.settle(p.conn, time.Now())
	}
	if failed != nil {
		return errUnwritten
	}
	return err
}

// quiet implements feed. It is called by the exchange's goroutine, so nothing is parked.
func (p *inline) quiet() {
	p.mu.Lock()
	p.silent, p.failed = true, nil
	p.mu.Unlock()
}

// sink is called by a lane's reader.
func (p *inline) sink(recs [][]byte, end error) bool {
	p.mu.Lock()
	took, more := p.took(recs, end, nil)
	p.mu.Unlock()
	if more {
		p.notify()
	}
	return took
}

// passSink is sink where the pass is known. It waits for no lock: another may be held by who waits for this pass's
// batch.
func (p *inline) passSink(pass Pass, recs [][]byte, end error) bool {
	if !p.mu.TryLock() {
		p.notify()
		return false
	}
	var b *outpath.Batch
	if p.open && end == nil && p.failed == nil {
		b = p.x.server.batch(pass)
	}
	took, more := p.took(recs, end, b)
	p.mu.Unlock()
	if more {
		p.notify()
	}
	return took
}

func (p *inline) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// took writes what can be written now, by b unless it is nil. It says whether that was all, and whether next has to
// look. The lock is held.
func (p *inline) took(recs [][]byte, end error, b *outpath.Batch) (all, more bool) {
	if !p.open || end != nil || p.failed != nil {
		return false, true
	}
	room := func() bool { return p.conn.Held() == 0 }
	if b != nil {
		if !b.Begin(p.conn) { // it has bytes, or is being closed
			return false, true
		}
		room = b.Room
	}
	x, now := p.x, time.Now()
	buf := getBuffer()
	defer putBuffer(buf)
	n := 0
	for n < len(recs) && p.failed == nil && room() {
		first := n
		for *buf = (*buf)[:0]; n < len(recs) && len(*buf) < writeMax && len(recs[n]) <= inlineRecord; n++ {
			*buf = x.chunks.AppendText(*buf, recs[n])
		}
		if n == first { // too large
			break
		}
		p.failed = x.out.inline(*buf)
		x.account.took(n-first, now)
	}
	if x.wait != nil {
		x.wait.wrote(now)
	}
	if b != nil {
		x.server.metrics.ring.Inc()
		b.End(p.signal)
	} else {
		x.server.metrics.inline.Inc()
	}
	if n < len(recs) || p.failed != nil {
		p.written = n
		return false, true
	}
	return true, b == nil && p.conn.Held() > 0 // a batch says so itself
}
