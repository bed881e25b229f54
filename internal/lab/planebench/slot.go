package planebench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// minITL is the shortest response whose mean inter-token latency is worth a sample.
const minITL = 32

// slot is one place of the closed loop: it holds one response at a time. The fields without a note belong to whoever
// consumes the response: the slot's goroutine (pull), or the lane's reader and, between two responses, the opener
// (sink).
type slot struct {
	f       *load
	index   int // over all frontends
	process int
	engine  int // of the process
	first   bool
	want    int // records of this response
	id      uint64
	turn    uint32

	next     uint32
	openedAt int64
	firstAt  int64
	lastAt   int64

	taken   atomic.Uint64 // records, over all responses
	over    atomic.Bool   // the end of this response has been counted
	waiting atomic.Int64  // since when the response has no record; 0 = it has one, or there is no response

	mu  sync.Mutex
	res response // for stop, and for a refusal that comes back
}

// open mints the slot's next response, sends the request, and says whether there is something to consume.
func (s *slot) open(ctx context.Context) bool {
	f := s.f
	if f.stopping.Load() {
		return false
	}
	s.turn++
	s.id = uint64(s.index+1)<<32 | uint64(s.turn)
	s.next, s.firstAt, s.lastAt = 0, 0, 0
	s.over.Store(false)
	s.openedAt = f.clock.now()
	s.waiting.Store(s.openedAt)
	q := request{id: s.id, engine: s.engine, records: s.want, bytes: f.cfg.Load.TokenBytes}
	peer, isPeer := f.front.(opener)
	var res response
	var err error
	if isPeer {
		res, err = peer.open(ctx, s.process, q)
	} else {
		res, err = f.front.mint(ctx, f.nodes[s.process])
	}
	if err != nil {
		s.failed(fmt.Errorf("open: %w", err))
		return false
	}
	s.mu.Lock()
	s.res = res
	s.mu.Unlock()
	if f.sink {
		res.OnRecords(s.take)
	}
	if isPeer {
		return true
	}
	q.terms = res.Terms()
	if err := f.paths[s.process].send(q); err != nil {
		if s.over.CompareAndSwap(false, true) { // else a sink has seen an end meanwhile
			s.failed(fmt.Errorf("send the request: %w", err))
			_ = res.Close()
			return false
		}
	}
	return true
}

// response is the one that the slot holds, nil when it has none.
func (s *slot) response() response {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.res
}

// release gives the response back.
func (s *slot) release() {
	s.mu.Lock()
	res := s.res
	s.res = nil
	s.mu.Unlock()
	if res != nil {
		_ = res.Close() // it never fails
	}
}

// pull is the life of a slot that is pulled.
func (s *slot) pull(ctx context.Context) {
	for s.open(ctx) {
		res := s.response()
		for {
			batch, err := res.NextBatch(ctx)
			if err != nil {
				ok := s.end(res, err)
				s.release()
				if !ok {
					return
				}
				break
			}
			s.records(batch)
		}
	}
}

// take is the slot's sink.
func (s *slot) take(batch [][]byte, err error) bool {
	s.records(batch)
	if err != nil && s.over.CompareAndSwap(false, true) {
		if s.end(s.response(), err) {
			s.f.queue <- s // never waits: it has a place for each slot
		} else {
			s.f.retire <- s
		}
	}
	return true
}

// records checks and times what has come.
func (s *slot) records(batch [][]byte) {
	if len(batch) == 0 {
		return
	}
	f := s.f
	now := f.clock.now()
	measuring := f.measuring.Load()
	if s.firstAt == 0 {
		s.firstAt = now
		s.waiting.Store(0)
		if measuring && s.openedAt >= f.windowAt.Load() {
			f.addTTFT(now - s.openedAt)
		}
	}
	s.lastAt = now
	for _, b := range batch {
		stamp, ok := checkRecord(b, s.id, s.next, f.cfg.Load.TokenBytes)
		if !ok {
			f.wrongRecord(fmt.Sprintf("expected record %d of response %x, got %s", s.next, s.id, describe(b)))
		}
		if measuring && ok {
			f.delays.add(now - stamp)
			if s.next == 0 {
				f.firstDelays.add(now - stamp)
			}
		}
		s.next++
	}
	s.taken.Store(s.taken.Load() + uint64(len(batch)))
}

// end takes the response's end and says whether the slot goes on.
func (s *slot) end(res response, err error) bool {
	f := s.f
	if !errors.Is(err, io.EOF) {
		s.failed(err)
		return false
	}
	trailer := res.Trailer()
	switch {
	case len(trailer) != 4:
		f.wrongRecord(fmt.Sprintf("response %x: the END has a trailer of %d bytes, expected 4", s.id, len(trailer)))
	case binary.BigEndian.Uint32(trailer) != s.next:
		f.wrongRecord(fmt.Sprintf("response %x: %d records were made, %d taken", s.id, binary.BigEndian.Uint32(trailer),
			s.next))
	case int(s.next) != s.want && !f.stopping.Load():
		f.wrongRecord(fmt.Sprintf("response %x: complete with %d records of %d", s.id, s.next, s.want))
	}
	s.waiting.Store(0)
	f.completed.Add(1)
	if f.measuring.Load() && s.next >= minITL {
		f.addITL(float64(s.lastAt-s.firstAt) / float64(s.next-1))
	}
	if s.first {
		s.first, s.want = false, f.cfg.Load.OSL
		f.firstEnded()
	}
	f.warmed()
	f.maybeEnough()
	return true
}

// failed counts a response that did not end complete; the slot stays empty.
func (s *slot) failed(err error) {
	s.waiting.Store(0)
	if s.first {
		s.first = false
		s.f.firstEnded()
	}
	s.f.responseError(fmt.Errorf("response %x of worker process %d: %w", s.id, s.process, err))
	s.f.warmed()
}
