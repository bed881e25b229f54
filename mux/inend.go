package mux

import "github.com/laneway-ai/laneway/mux/internal/pipe"

// Stop asks the worker to finish its last output and complete. It does nothing once the stream has ended.
func (s *InStream) Stop() {
	s.mu.Lock()
	if s.stopAsked || s.state == inClosing || s.state == inFree {
		s.mu.Unlock()
		return
	}
	s.stopAsked = true
	s.tell(wantStop, pipe.Urgent)
	s.mu.Unlock()
	s.lane.pipe.Flush(pipe.ByUrgent)
}

// Kill ends the stream now, with the end given unless it has one. What is buffered is dropped. It reaches the engine
// before the first record as well as after it, and does nothing when the worker has ended the stream. A sink is told
// by the lane's reader, at the latest when the worker's END comes. An end that is complete, or of no type that there
// is, counts as killed: what was cut short never looks complete.
func (s *InStream) Kill(end End) {
	if !end.Type.Valid() || end.Type == EndComplete {
		end.Type = EndKilled
	}
	s.mu.Lock()
	owing := s.kill(end)
	s.mu.Unlock()
	if owing {
		s.lane.pipe.Flush(pipe.ByUrgent)
	}
}

// kill is Kill with the lock held; it says whether the lane must be flushed.
func (s *InStream) kill(end End) (owing bool) {
	if s.state == inMinted || s.state == inLive {
		s.state, owing = inClosing, true
		s.tell(wantKill, pipe.Urgent)
		s.link.closing.Add(1)
	}
	if s.end == nil {
		s.finish(end)
		s.drop()
	}
	s.uncharge()
	return owing
}

// drop forgets what waits for the application. The lock is held.
func (s *InStream) drop() {
	if s.inSink {
		return // the reader is using the buffer and will see the end
	}
	s.dropped = s.dropped || s.readyN > 0
	s.passing, s.ready, s.readyN, s.unread, s.assembly = nil, nil, 0, 0, nil
	s.refund()
}

// finish gives the application its end. The lock is held.
func (s *InStream) finish(end End) {
	end.Records, end.Bytes = s.records, s.bytes
	s.end, s.endedAt = &end, s.link.now()
	s.link.stats.end(end.Type)
	s.rouse()
}

// overdue ends a stream whose time is up; the lane must be flushed then. The lock is held.
func (s *InStream) overdue(now int64) bool {
	if s.end != nil {
		return false
	}
	text := ""
	switch {
	case s.endBy != 0 && now >= s.endBy:
		text = "the request's deadline has passed"
	case s.firstBy != 0 && s.records == 0 && now >= s.firstBy:
		text = "no first record in time"
	case s.inactivity != 0 && s.records > 0 && now-s.lastData >= s.inactivity:
		text = "no further record in time"
	default:
		return false
	}
	s.kill(End{Type: EndDeadline, Text: text})
	return true
}

// uncharge gives the window back to the total. The lock is held.
func (s *InStream) uncharge() {
	if s.charged {
		s.charged = false
		s.link.budget.Give(int64(s.window))
	}
	if s.end != nil {
		s.assembly = nil // of a record that will never be whole
	}
	s.refund()
}

// chargeMore takes n bytes of the total for a record that is assembled: they have left the window. The lock is held.
func (s *InStream) chargeMore(n int) bool {
	if !s.link.budget.Take(int64(n)) {
		return false
	}
	s.extra += n
	s.pieces = s.extra > 0
	return true
}

// refund gives back what was charged for assembled records that the application has. The lock is held.
func (s *InStream) refund() {
	if !s.pieces {
		return
	}
	if n := s.extra - len(s.assembly); n > 0 {
		s.extra -= n
		s.pieces = s.extra > 0
		s.link.budget.Give(int64(n))
	}
}

var closedByConsumer = End{Type: EndKilled, Text: "closed by the consumer"}

// Close gives the stream back; one that has not ended is killed. Idempotent.
func (s *InStream) Close() error {
	s.Kill(closedByConsumer)
	s.mu.Lock()
	s.closed = true
	s.unwatch()
	s.drop()
	s.mu.Unlock()
	return nil
}
