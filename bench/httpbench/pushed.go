package httpbench

import (
	"context"
	"sync"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/lab/refplane"
)

// pushed is a stream whose records another goroutine brings, call by call: a connection's reader, or an engine of this
// process. What its sink does not take waits here; a response's length bounds it, as these arms have no window.
type pushed struct {
	origin
	pass  *pass
	ended func() // gives the response back, nil = nothing to give back
	wake  chan struct{}

	mu      sync.Mutex
	sink    func(pass frontend.Pass, records [][]byte, err error) bool
	pulled  bool // records wait for NextBatch until it finds none
	kept    refplane.Records
	err     error
	trailer []byte
	over    bool // Close was called
}

func newPushed(o origin, p *pass) *pushed {
	return &pushed{origin: o, pass: p, wake: make(chan struct{}, 1)}
}

var _ frontend.PassStream = (*pushed)(nil)

// take brings records, or the end, to the sink, or leaves them for NextBatch. One goroutine at a time calls it, that of
// the pass.
func (s *pushed) take(recs [][]byte, end error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if s.sink != nil && !s.pulled {
		if s.sink(s.pass, recs, end) {
			return
		}
		s.pulled = true
	}
	for _, rec := range recs {
		s.kept.Add(rec)
	}
	s.err = s.lost(end)
	s.rouse()
}

func (s *pushed) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// first waits until there is a record or an end.
func (s *pushed) first(ctx context.Context) error {
	for {
		s.mu.Lock()
		there := !s.kept.Empty() || s.err != nil
		s.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// OnPass implements frontend.PassStream.
func (s *pushed) OnPass(sink func(frontend.Pass, [][]byte, error) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink, s.pulled = sink, !s.kept.Empty() || s.err != nil
}

// OnRecords implements frontend.SinkStream.
func (s *pushed) OnRecords(sink func([][]byte, error) bool) {
	s.OnPass(func(_ frontend.Pass, recs [][]byte, err error) bool { return sink(recs, err) })
}

// NextBatch implements frontend.Stream.
func (s *pushed) NextBatch(ctx context.Context) ([][]byte, error) {
	for {
		s.mu.Lock()
		some, err, sunk := s.kept.Take(), s.err, s.sink != nil
		if !some && err == nil && sunk {
			s.pulled = false // the sink has it again, and needs no buffers
			s.kept = refplane.Records{}
		}
		s.mu.Unlock()
		if some {
			return s.kept.Batch(), nil
		}
		if err != nil || sunk {
			return nil, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// complete ends the stream as complete. It is called like take.
func (s *pushed) complete(trailer []byte, end error) {
	s.mu.Lock()
	s.trailer = append([]byte(nil), trailer...)
	s.mu.Unlock()
	s.take(nil, end)
}

// Trailer implements frontend.Stream.
func (s *pushed) Trailer() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trailer
}

// Stop implements frontend.Stream: there is no way to ask, so it is a kill.
func (s *pushed) Stop() { s.Kill() }

// Kill implements frontend.Stream. Who brings the records finds out by gone, or never.
func (s *pushed) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = errKilled
		s.rouse()
	}
}

// gone says whether nobody wants the records any more.
func (s *pushed) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// Close implements frontend.Stream.
func (s *pushed) Close() error {
	s.Kill()
	s.mu.Lock()
	first := !s.over
	s.over = true
	s.mu.Unlock()
	if first && s.ended != nil {
		s.ended()
	}
	return nil
}
