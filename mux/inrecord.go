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
	if s.received+size-s.reported > uint64(s.window) {
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
	parts := s.pieces && s.assembly != nil
	if parts {
		whole += len(s.assembly)
		if whole > s.link.cfg.MaxRecord {
			return &wire.Error{Kind: h.Kind, Slot: s.slot, Reason: fmt.Sprintf("makes a record of more than %d bytes", s.link.cfg.MaxRecord)}
		}
	}
	if s.sunk && !s.pulled && s.readyN == 0 && !parts {
		s.passing = body
	} else {
		s.keep()
		s.ready = binary.LittleEndian.AppendUint32(s.ready, uint32(whole))
		if parts {
			s.ready = append(s.ready, s.assembly...)
			s.assembly = nil
		}
		s.ready = append(s.ready, body...)
	}
	if s.records == 0 {
		s.firstData = s.lastData
	}
	s.readyN++
	s.records++
	s.bytes += uint64(whole)
	return nil
}

// keep copies the record that waits in the lane's buffer. The lock is held, and the lane's reader has not yet been here at the end of its
// read (deliver), or is here.
func (s *InStream) keep() {
	if s.passing != nil {
		s.ready = binary.LittleEndian.AppendUint32(s.ready, uint32(len(s.passing)))
		s.ready = append(s.ready, s.passing...)
		s.passing = nil
	}
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
