package planebench

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
)

// job is one response that an engine runs.
type job struct {
	w      recordWriter
	id     uint64
	next   uint32
	total  uint32
	bytes  int
	parked bool // its window is full
	room   atomic.Bool
	// stopped is set when the frontend has said on the request path that it stops.
	stopped *atomic.Bool
}

// engine makes passes: one record on each running job, then one Flush.
type engine struct {
	worker   workPlane
	clock    clock
	interval time.Duration
	phase    time.Duration
	passes   *atomic.Uint64
	made     *atomic.Uint64 // records, once a pass
	late     *atomic.Uint64
	wake     chan struct{} // capacity 1: for an engine without an interval that has nothing to do

	mu       sync.Mutex
	incoming []*job

	running  []*job
	finished []*job
	buf      []byte
}

// add gives the engine a job. It never waits.
func (e *engine) add(j *job) {
	j.w.OnWritable(func() {
		j.room.Store(true)
		e.rouse()
	})
	e.mu.Lock()
	e.incoming = append(e.incoming, j)
	e.mu.Unlock()
	e.rouse()
}

func (e *engine) rouse() {
	if e.interval == 0 {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// run makes passes until ctx ends.
func (e *engine) run(ctx context.Context) {
	if e.interval == 0 {
		for ctx.Err() == nil {
			if e.pass() > 0 {
				continue
			}
			select {
			case <-e.wake:
			case <-ctx.Done():
			}
		}
		return
	}
	// The passes of all engines hang on the host's clock, so their phases hold between processes too.
	period := int64(e.interval)
	at := e.clock.now()/period*period + period + int64(e.phase)
	t := time.NewTimer(time.Duration(at - e.clock.now()))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		e.pass()
		e.passes.Add(1)
		now := e.clock.now()
		for at += period; now-at > period; at += period {
			e.late.Add(1)
		}
		t.Reset(time.Duration(at - now))
	}
}

// pass puts one record on each job that has room and says how many that were. Ends go last, because an END is written
// at once and would cut the pass in two.
func (e *engine) pass() int {
	e.mu.Lock()
	e.running = append(e.running, e.incoming...)
	clear(e.incoming)
	e.incoming = e.incoming[:0]
	e.mu.Unlock()
	stamp := e.clock.now()
	put, made := 0, uint64(0)
	keep := e.running[:0]
	for _, j := range e.running {
		switch {
		case j.w.Err() != nil:
			continue
		case j.w.StopRequested(), j.stopped.Load():
			e.finished = append(e.finished, j)
			continue
		case j.parked && !j.room.Load():
			keep = append(keep, j)
			continue
		}
		j.room.Store(false)
		j.parked = false
		b := e.record(j.bytes)
		putRecord(b, j.id, j.next, stamp)
		if err := j.w.TryPut(b); errors.Is(err, responseplane.ErrWindowFull) {
			j.parked = true
		} else if err != nil {
			continue
		} else {
			put++
			made++
			j.next++
		}
		if j.next == j.total {
			e.finished = append(e.finished, j)
			continue
		}
		keep = append(keep, j)
	}
	e.made.Add(made)
	clear(e.running[len(keep):])
	e.running = keep
	for i, j := range e.finished {
		var made [4]byte
		binary.BigEndian.PutUint32(made[:], j.next)
		_ = j.w.PutComplete(made[:]) // it fails only where the consumer has gone, who counts it
		e.finished[i] = nil
		put++
	}
	e.finished = e.finished[:0]
	e.worker.Flush()
	return put
}

func (e *engine) record(n int) []byte {
	if cap(e.buf) < n {
		e.buf = make([]byte, n)
	}
	return e.buf[:n]
}
