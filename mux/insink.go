package mux

import "time"

// slowSink is how long sink calls, or the end of a pass, may take before it is counted.
const slowSink = 10 * time.Millisecond

// Sink takes the records of one stream as they come, on the lane's reader: one call per stream and read, never two at
// a time for a stream, in order. records are valid during the call, and it must not wait: no Next, NextBatch or Wait
// of its stream, no Close of the FrontendNode; Stop, Kill and Close of its stream are allowed. end is set with the last
// call, which comes once, unless the stream was closed before. False says "not now": the records of this call stay
// buffered, and the stream is pulled until NextBatch finds it empty.
type Sink func(records [][]byte, end error) bool

// PassSink is a Sink that is also told of the pass that it is called in.
type PassSink func(pass *Pass, records [][]byte, end error) bool

// OnRecords sets the sink. Records that wait already are given to NextBatch, so call it before the terms are sent.
// ended makes the error that the last call has, of any end, complete too. It is a function of its own so that the
// caller need not put another one around the sink: it would be one more place in memory that each record fetches from
// far away.
func (s *InStream) OnRecords(sink Sink, ended func(*End) error) { s.setSink(sink, nil, ended) }

// OnPass is OnRecords for a sink that wants to know its pass.
func (s *InStream) OnPass(sink PassSink, ended func(*End) error) { s.setSink(nil, sink, ended) }

// setSink sets one of the sinks.
func (s *InStream) setSink(sink Sink, passSink PassSink, ended func(*End) error) {
	s.mu.Lock()
	s.sunk, s.sink, s.passSink, s.endedAs = true, sink, passSink, ended
	s.pulled = s.readyN > 0 || s.end != nil
	s.mu.Unlock()
}

// deliver tells the consumer, once after a read, what the read has brought: by its sink, or by a wake. It runs on the
// lane's reader, or on the goroutine that ends the stream. pass is what the call belongs to.
func (s *InStream) deliver(pass *Pass) {
	s.mu.Lock()
	s.touched = false
	if s.credit() { // fragments count when they are assembled, not when the record is taken
		pass.owing = s.lane.pipe
	}
	if !s.sunk || s.pulled || s.closed {
		s.keep()
		if s.waiting && (s.readyN > 0 || s.end != nil) {
			s.waiting = false
			wake := s.wake
			s.mu.Unlock()
			s.link.stats.wakes.Add(1)
			signal(wake)
			return
		}
		s.mu.Unlock()
		return
	}
	if s.inSink || s.told || s.readyN == 0 && s.end == nil {
		s.keep()
		s.mu.Unlock() // a call that is under way looks again for an end
		return
	}
	if !pass.reading {
		s.keep() // the lane's reader may go on before the call is over
	}
	for s.callSink(pass) {
	}
}

// callSink gives what is ready to the sink and says whether an end has come meanwhile. The lock is held, and let go
// unless it says so.
func (s *InStream) callSink(pass *Pass) (again bool) {
	views := pass.views[:0]
	if s.passing != nil {
		views = append(views, s.passing[:len(s.passing):len(s.passing)])
	} else {
		views = view(views, s.ready)
	}
	pass.views = views
	sink, passSink, end := s.sink, s.passSink, s.end
	s.inSink, s.told = true, end != nil
	s.mu.Unlock()

	var err error
	if end != nil {
		err = s.endedAs(end)
	}
	took := false
	if sink != nil {
		took = sink(views, err)
	} else {
		took = passSink(pass, views, err)
	}
	pass.called(s.link.node)
	clear(views) // the pass must keep no stream alive

	s.mu.Lock()
	s.inSink = false
	s.rouse()
	if !took && !s.closed {
		s.keep()
		s.pulled = true
		s.mu.Unlock()
		return false
	}
	if cap(s.ready) > s.link.cfg.ShrinkThreshold {
		s.ready = nil
	}
	s.passing, s.ready, s.readyN, s.unread = nil, s.ready[:0], 0, 0
	s.refund()
	if s.credit() {
		pass.owing = s.lane.pipe
	}
	if end != nil {
		s.uncharge()
	}
	if again = end == nil && s.end != nil && !s.closed; !again {
		s.mu.Unlock()
	}
	return again
}
