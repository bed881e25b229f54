package mux

import (
	"encoding/binary"
	"fmt"

	"github.com/laneway-ai/laneway/internal/wire"
)

// open takes an OPEN whose slot is the stream's. False says that it is not for this stream, so it is answered by KILL. The
// lock is held.
func (s *InStream) open(number, key uint64) (bool, error) {
	if number != s.number || key != s.key {
		return false, nil
	}
	switch s.state {
	case inMinted:
		s.state = inLive
		s.received = wire.HeaderSize + wire.OpenSize
	case inLive:
		return true, &wire.Error{Kind: wire.Open, Slot: s.slot, Reason: "came twice"}
	}
	return true, nil
}

// data takes a DATA or DATA_MORE. The lock is held.
func (s *InStream) data(l *lane, h wire.Header, body []byte) error {
	size := uint64(wire.HeaderSize + len(body))
	if most := wire.MaxRecord(int(s.window)); size > uint64(most) {
		return &wire.Error{Kind: h.Kind, Slot: s.slot, Reason: fmt.Sprintf("has %d bytes, at most %d are allowed with a window of %d", size, most, s.window)}
	}
	if s.received+size-s.reported > s.window {
		return &wire.Error{Kind: h.Kind, Slot: s.slot, Reason: fmt.Sprintf("overruns the window of %d bytes: %d received, %d reported as consumed", s.window, s.received+size, s.reported)}
	}
	s.received += size
	s.lastData = l.lastRecv.Load()
	s.heads.note(h, s.lastData-s.minted)
	if h.Kind == wire.DataMore {
		if len(s.assembly)+len(body) > s.link.cfg.MaxRecord {
			return &wire.Error{Kind: h.Kind, Slot: s.slot, Reason: fmt.Sprintf("makes a record of more than %d bytes", s.link.cfg.MaxRecord)}
		}
		if !s.chargeMore(len(body)) {
			s.kill(End{Type: EndFailed, Text: fmt.Sprintf("a record of more than %d bytes does not fit what all responses may buffer here", len(s.assembly)+len(body))})
			return nil
		}
		s.assembly = append(s.assembly, body...) // counts as consumed: it has left the window
		return nil
	}
	whole := len(body)
	s.unread += size
	if s.assembly != nil {
		whole += len(s.assembly)
		if whole > s.link.cfg.MaxRecord {
			return &wire.Error{Kind: h.Kind, Slot: s.slot, Reason: fmt.Sprintf("makes a record of more than %d bytes", s.link.cfg.MaxRecord)}
		}
	}
	s.ready = binary.LittleEndian.AppendUint32(s.ready, uint32(whole))
	s.ready = append(append(s.ready, s.assembly...), body...)
	s.assembly = nil
	if s.records == 0 {
		s.firstData = s.lastData
	}
	s.readyN++
	s.records++
	s.bytes += uint64(whole)
	return nil
}

// ended takes the worker's END and says whether the slot is free now. The lock is held.
func (s *InStream) ended(l *lane, body []byte) (free bool, err error) {
	e, err := wire.ParseEnd(s.slot, body)
	if err != nil {
		return false, err
	}
	if e.Number != s.number {
		s.link.stats.drops.add(dropStale)
		return false, nil
	}
	if s.state == inClosing {
		s.link.closing.Add(-1)
		s.state = inFree
		l.noteEnd(s)
		return true, nil
	}
	if e.Type == EndComplete && (s.state != inLive || e.Records != s.records || e.Bytes != s.bytes || s.assembly != nil) {
		return false, &wire.Error{Kind: wire.End, Slot: s.slot, Reason: fmt.Sprintf("counts %d records of %d bytes, %d of %d came", e.Records, e.Bytes, s.records, s.bytes)}
	}
	s.received += uint64(wire.HeaderSize + len(body))
	opened := s.state == inLive
	s.state = inFree
	end := End{Type: e.Type, Code: e.Code, Retryable: e.Retryable, Text: e.Text}
	if len(e.Trailer) > 0 {
		end.Trailer = append([]byte(nil), e.Trailer...)
	}
	end.Records, end.Bytes = s.records, s.bytes
	s.end, s.endedAt = &end, l.lastRecv.Load()
	s.heads.note(wire.Header{Kind: wire.End, Length: len(body)}, s.endedAt-s.minted)
	s.link.stats.end(end.Type)
	if opened {
		s.reported = s.received
		s.wants |= wantConsumed
		l.enqueueLazy(s)
	}
	return true, nil
}

// deliver tells the consumer, once after a read, what the read has brought: by its sink, or by a wake. It runs on the
// lane's reader, or on the goroutine that ends the stream. pass is what the call belongs to.
//
// now is the node's time, and what it returns is its time afterwards: the clock is read once a sink call.
func (s *InStream) deliver(pass *Pass, now int64) int64 {
	s.mu.Lock()
	s.touched = false
	if l := s.credit(); l != nil { // fragments count when they are assembled, not when the record is taken
		s.mu.Unlock()
		l.flush(writeFlush)
		s.mu.Lock()
	}
	if s.sink == nil || s.pulled || s.closed {
		if s.waiting && (s.readyN > 0 || s.end != nil) {
			s.waiting = false
			wake := s.wake
			s.mu.Unlock()
			s.link.stats.wakes.Add(1)
			signal(wake)
			return now
		}
		s.mu.Unlock()
		return now
	}
	if s.inSink || s.told || s.readyN == 0 && s.end == nil {
		s.mu.Unlock() // a call that is under way looks again for an end
		return now
	}
	for again := true; again; {
		now, again = s.callSink(pass, now)
	}
	return now
}

// callSink gives what is ready to the sink and says whether an end has come meanwhile. The lock is held, and let go unless
// it says so.
func (s *InStream) callSink(pass *Pass, start int64) (now int64, again bool) {
	s.sinkViews = view(s.sinkViews[:0], s.ready)
	sink, views, end := s.sink, s.sinkViews, s.end
	s.inSink, s.told = true, end != nil
	s.mu.Unlock()

	took := sink(pass, views, end)
	if now = s.link.now(); now-start > int64(slowSink) {
		s.link.stats.sinkSlow.Add(1)
	}
	s.link.stats.sinkCalls.Add(1)

	s.mu.Lock()
	s.inSink = false
	s.rouse()
	if !took && !s.closed {
		s.pulled = true
		s.mu.Unlock()
		return now, false
	}
	if cap(s.ready) > s.link.cfg.ShrinkThreshold {
		s.ready = nil
	}
	s.ready, s.readyN, s.unread = s.ready[:0], 0, 0
	s.refund()
	l := s.credit()
	if end != nil {
		s.uncharge()
	}
	again = end == nil && s.end != nil && !s.closed
	s.mu.Unlock()
	if l != nil {
		l.flush(writeFlush)
	}
	if again {
		s.mu.Lock()
	}
	return now, again
}
