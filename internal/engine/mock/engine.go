package mock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/serving/mockproto"
)

// Engine is one running engine. Its methods may be called concurrently.
type Engine struct {
	cfg  Config
	wake chan struct{} // capacity 1: there is something in in or writable, or a change of draining or closed
	gone chan struct{} // closed when the loop has ended
	idle chan struct{} // closed when draining and nothing is open

	runningNow, heldNow atomic.Int64

	mu       sync.Mutex
	in       []*seq // submitted, not yet seen by the loop; bounded by open
	writable []*seq // parked, and there is room again; each at most once
	open     int    // accepted and not ended: at most MaxNumSeqs + MaxWaitingQueueLength
	failRand *rand.Rand
	draining bool
	closed   bool

	loop loop // the loop's own
}

// Start checks the configuration and starts an engine. It runs until Close.
func Start(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	// One source for each kind of draw, so that the order of events of one kind does not move another's draws.
	source := func(kind uint64) *rand.Rand {
		return rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Index)<<8|kind))
	}
	e := &Engine{
		cfg:      cfg,
		wake:     make(chan struct{}, 1),
		gone:     make(chan struct{}),
		idle:     make(chan struct{}),
		failRand: source(1),
	}
	e.loop = loop{
		cfg:         &e.cfg,
		runningNow:  &e.runningNow,
		heldNow:     &e.heldNow,
		holdRand:    source(4),
		prefillRand: source(2),
		sched: newSchedule(time.Now(), cfg.InterTokenLatency, cfg.InterTokenLatencyStdDev,
			Phase(cfg.Index, cfg.Count, cfg.Seed, cfg.InterTokenLatency), source(3)),
	}
	go e.run() // ends on Close, which joins it
	return e, nil
}

// Submit takes a request whose response goes to w. It returns at once: nil when the request runs or waits, else a
// *RefusedError, and then w was not touched. The engine is the only user of an accepted request's w.
func (e *Engine) Submit(req mockproto.Request, w Writer) error {
	s, refused := newSeq(&e.cfg, req, w)
	if refused == nil {
		refused = e.accept(s)
	}
	if refused != nil {
		e.cfg.Observer.Refused(refused.Reason)
		if refused.Reason == RefusedInjected {
			e.cfg.Observer.Injected(FailRefuse)
		}
		return refused
	}
	e.signal()
	return nil
}

func (e *Engine) accept(s *seq) *RefusedError {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining || e.closed {
		return &RefusedError{Reason: RefusedDraining, text: "the worker is draining"}
	}
	if places := e.cfg.MaxNumSeqs + e.cfg.MaxWaitingQueueLength; e.open >= places {
		return &RefusedError{Reason: RefusedBusy, text: fmt.Sprintf("all %d running and %d waiting places are taken",
			e.cfg.MaxNumSeqs, e.cfg.MaxWaitingQueueLength)}
	}
	if e.cfg.FailureRate > 0 {
		s.inject, s.failAt = drawFailure(e.failRand, e.cfg.FailureRate, e.cfg.FailureTypes, s.total())
		if s.inject == FailRefuse {
			return &RefusedError{Reason: RefusedInjected, text: "injected failure: refused"}
		}
	}
	s.arrived = time.Now()
	e.open++
	e.in = append(e.in, s)
	return nil
}

// Load returns how many requests run now (prefill included) and how many wait.
func (e *Engine) Load() (running, waiting int) {
	e.mu.Lock()
	open := e.open
	e.mu.Unlock()
	running = int(e.runningNow.Load())
	return running, max(open-running, 0)
}

// Held returns how many of the waiting requests are held back (Config.HoldShare).
func (e *Engine) Held() int { return int(e.heldNow.Load()) }

// Drain refuses new requests and waits until those that were accepted have ended, or ctx has. Idempotent.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	e.signal() // the loop closes idle when there is nothing left
	select {
	case <-e.idle:
		return nil
	case <-e.gone:
		return nil
	case <-ctx.Done():
		running, waiting := e.Load()
		if running+waiting == 0 {
			return nil // no time was needed
		}
		return fmt.Errorf("mock: %d requests run and %d wait: %w", running, waiting, ctx.Err())
	}
}

// Close ends the engine: what is open ends as failed. It returns when the engine's goroutine has. Idempotent.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.signal()
	<-e.gone
	return nil
}

func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default: // it has been told already
	}
}

// onWritable is called by whoever made room in the window of s.
func (e *Engine) onWritable(s *seq) {
	e.mu.Lock()
	if !s.queued {
		s.queued = true
		e.writable = append(e.writable, s)
	}
	e.mu.Unlock()
	e.signal()
}

func (e *Engine) run() {
	defer close(e.gone)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var in, writable []*seq
	for {
		e.mu.Lock()
		in, e.in = e.in, in[:0]
		writable, e.writable = e.writable, writable[:0]
		for _, s := range writable {
			s.queued = false
		}
		closed := e.closed
		e.mu.Unlock()

		now := time.Now()
		for _, s := range in {
			// Set here and not in Submit: from now on this goroutine is the writer's user.
			s.w.OnWritable(func() { e.onWritable(s) })
			e.loop.enqueue(s, now)
		}
		for _, s := range writable {
			if s.state == parked {
				s.state = decoding
			}
		}
		clear(in) // the slices are used again: let go of the requests
		clear(writable)
		if closed {
			e.loop.abandon()
		} else {
			e.loop.step(now)
		}
		if e.settle() && closed {
			return
		}

		if next, ok := e.loop.nextEvent(); ok {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop() // idle: only a wake goes on
		}
		select {
		case <-e.wake:
		case <-timer.C:
		}
	}
}

// settle gives back the places of the requests that have ended. It reports whether nothing is open.
func (e *Engine) settle() (empty bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open -= e.loop.ended
	e.loop.ended = 0
	if e.open > 0 {
		return false
	}
	if e.draining {
		select {
		case <-e.idle:
		default:
			close(e.idle)
		}
	}
	return true
}
