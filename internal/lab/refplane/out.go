package refplane

import (
	"context"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// maxQueued bounds what waits for a connection, in bytes. A full queue says responseplane.ErrWindowFull to records.
const maxQueued = 64 << 20

// out is a connection's send queue. put may be called by any goroutine; run is its one writer.
type out struct {
	single   bool // a write for each frame
	interval time.Duration
	stats    *counters
	wake     chan struct{} // capacity 1

	mu     sync.Mutex
	buf    []byte
	ends   []int // where frames end in buf, when single
	holds  int   // records in buf
	busy   bool  // what was taken is being written
	full   []func()
	closed bool
}

func newOut(single bool, interval time.Duration, stats *counters) *out {
	return &out{single: single, interval: interval, stats: stats, wake: make(chan struct{}, 1)}
}

// put queues a frame. onRoom is called once when a full queue has room again, or the connection has died.
func (o *out) put(kind byte, id uint64, body []byte, onRoom func()) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return responseplane.ErrLost
	}
	if kind == kindData && len(o.buf) > maxQueued {
		if onRoom != nil {
			o.full = append(o.full, onRoom)
		}
		return responseplane.ErrWindowFull
	}
	o.buf = appendFrame(o.buf, kind, id, body)
	if kind == kindData {
		o.holds++
	}
	if o.single {
		o.ends = append(o.ends, len(o.buf))
	}
	return nil
}

// flush wakes the writer.
func (o *out) flush() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// pending tells whether something waits.
func (o *out) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.buf) > 0
}

// idle tells whether everything has been written, or never will be.
func (o *out) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed || len(o.buf) == 0 && !o.busy
}

// run writes until ctx ends, the connection fails, or last says that nothing will come any more.
func (o *out) run(ctx context.Context, conn transport.Conn, last func() bool) error {
	defer o.close()
	var spare []byte
	var ends []int
	var timer *time.Timer
	if o.interval > 0 {
		timer = time.NewTimer(time.Hour)
		defer timer.Stop()
	}
	written := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.wake:
		}
		if o.interval > 0 {
			if wait := o.interval - time.Since(written); wait > 0 {
				timer.Reset(wait)
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-timer.C:
				}
			}
			written = time.Now()
		}
		finished := last() // before the queue is taken: what came before it is written
		o.mu.Lock()
		spare, o.buf = o.buf, spare[:0]
		ends, o.ends = o.ends, ends[:0]
		records := o.holds
		o.holds, o.busy = 0, true
		full := o.full
		o.full = nil
		o.mu.Unlock()
		for _, f := range full {
			f()
		}
		if o.single {
			o.stats.wrote(records, 1)
		} else {
			o.stats.wrote(1, records)
		}
		if err := o.write(conn, spare, ends); err != nil {
			return err
		}
		o.mu.Lock()
		o.busy = false
		o.mu.Unlock()
		if finished {
			return nil
		}
	}
}

func (o *out) write(conn transport.Conn, b []byte, ends []int) error {
	if !o.single {
		if len(b) == 0 {
			return nil
		}
		ends = append(ends[:0], len(b))
	}
	at := 0
	for _, end := range ends {
		n, err := conn.Write(b[at:end])
		o.stats.writes.Add(1)
		o.stats.bytesOut.Add(uint64(n))
		if err != nil {
			return err
		}
		at = end
	}
	return nil
}

// close ends the queue: nothing is taken any more, and who waited for room hears of it.
func (o *out) close() {
	o.mu.Lock()
	o.closed = true
	o.buf, o.ends = nil, nil
	full := o.full
	o.full = nil
	o.mu.Unlock()
	for _, f := range full {
		f()
	}
}
