package httpbench

import (
	"context"
	"sync"

	"github.com/laneway-ai/laneway/internal/httpfront"
)

// pushed is a stream whose records another goroutine brings, call by call: a connection's reader, or an engine of this process. What its sink does not take waits here;
// a response's length bounds it, as these arms have no window.
type pushed struct {
	origin
	pass  *pass
	ended func() // gives the response back, nil = nothing to give back
	wake  chan struct{}

	mu      sync.Mutex
	sink    func(pass httpfront.Pass, records [][]byte, err error) bool
	pulled  bool // records wait for NextBatch until it finds none
	buf     []byte
	ends    []int
	err     error
	trailer []byte
	over    bool // Close was called

	// Of NextBatch.
	taken []byte
	at    []int
	batch [][]byte
}

func newPushed(o origin, p *pass) *pushed {
	return &pushed{origin: o, pass: p, wake: make(chan struct{}, 1)}
}

var _ httpfront.PassStream = (*pushed)(nil)

// take brings records, or the end, to the sink, or leaves them for NextBatch. One goroutine at a time calls it, that of the pass.
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
		s.buf = append(s.buf, rec...)
		s.ends = append(s.ends, len(s.buf))
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
		there := len(s.ends) > 0 || s.err != nil
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

// OnPass implements httpfront.PassStream.
func (s *pushed) OnPass(sink func(httpfront.Pass, [][]byte, error) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink, s.pulled = sink, len(s.ends) > 0 || s.err != nil
}

// OnRecords implements httpfront.SinkStream.
func (s *pushed) OnRecords(sink func([][]byte, error) bool) {
	s.OnPass(func(_ httpfront.Pass, recs [][]byte, err error) bool { return sink(recs, err) })
}

// NextBatch implements httpfront.Stream.
func (s *pushed) NextBatch(ctx context.Context) ([][]byte, error) {
	for {
		s.mu.Lock()
		s.taken, s.buf = s.buf, s.taken[:0]
		s.at, s.ends = s.ends, s.at[:0]
		err, sunk := s.err, s.sink != nil
		if len(s.at) == 0 && err == nil && sunk {
			s.pulled = false // the sink has it again, and needs no buffers
			s.taken, s.buf, s.at, s.ends, s.batch = nil, nil, nil, nil, nil
		}
		s.mu.Unlock()
		if len(s.at) > 0 {
			s.batch = s.batch[:0]
			from := 0
			for _, to := range s.at {
				s.batch = append(s.batch, s.taken[from:to])
				from = to
			}
			return s.batch, nil
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

// Trailer implements httpfront.Stream.
func (s *pushed) Trailer() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trailer
}

// Stop implements httpfront.Stream: there is no way to ask, so it is a kill.
func (s *pushed) Stop() { s.Kill() }

// Kill implements httpfront.Stream. Who brings the records finds out by gone, or never.
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

// Close implements httpfront.Stream.
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
