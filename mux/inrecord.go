package mux

import (
	"encoding/binary"
	"fmt"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// open takes an OPEN whose slot is the stream's. The lock is held.
func (s *InStream) open(body []byte, now int64) error {
	number, key, err := wire.ParseOpen(s.slot, body)
	switch {
	case err != nil:
		return err
	case number != s.number || key != s.key:
		s.link.stats.drops.add(dropKey)
	case s.state == inMinted:
		s.state = inLive
		s.heads.note(wire.Header{Kind: wire.Open, Length: len(body)}, now-s.minted)
	case s.state == inLive:
		s.broke("OPEN came twice")
	default:
		s.link.stats.drops.add(dropClosing)
	}
	return nil
}

// broke ends a stream whose worker has broken the protocol. The lock is held.
func (s *InStream) broke(format string, a ...any) {
	s.kill(End{Type: EndProtocol, Text: fmt.Sprintf(format, a...)})
	s.lane.flush = true
}

// data takes a DATA or DATA_MORE of a live stream. The lock is held.
func (s *InStream) data(h wire.Header, body []byte, now int64) {
	size := uint64(wire.HeaderSize + len(body))
	if most := wire.MaxRecord(int(s.window)); size > uint64(most) {
		s.broke("%s has %d bytes, at most %d are allowed with a window of %d", h.Kind, size, most, s.window)
		return
	}
	if s.received+size-s.reported > uint64(s.window) {
		s.broke("%s overruns the window of %d bytes: %d received, %d reported as consumed",
			h.Kind, s.window, s.received+size, s.reported)
		return
	}
	s.received += size
	s.lastData = now
	s.heads.note(h, now-s.minted)
	if h.Kind == wire.DataMore {
		if len(s.assembly)+len(body) > s.link.cfg.MaxRecord {
			s.broke("%s makes a record of more than %d bytes", h.Kind, s.link.cfg.MaxRecord)
			return
		}
		if !s.chargeMore(len(body)) {
			s.kill(End{Type: EndFailed, Text: fmt.Sprintf("a record of more than %d bytes does not fit what all "+
				"responses may buffer here", len(s.assembly)+len(body))})
			s.lane.flush = true
			return
		}
		s.assembly = append(s.assembly, body...) // counts as consumed: it has left the window
		return
	}
	whole := len(body)
	s.unread += size
	parts := s.pieces && s.assembly != nil
	if parts {
		whole += len(s.assembly)
		if whole > s.link.cfg.MaxRecord {
			s.broke("%s makes a record of more than %d bytes", h.Kind, s.link.cfg.MaxRecord)
			return
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
}

// keep copies the record that waits in the lane's buffer. The lock is held, and the lane's reader has not yet been
// here at the end of its read (deliver), or is here.
func (s *InStream) keep() {
	if s.passing != nil {
		s.ready = binary.LittleEndian.AppendUint32(s.ready, uint32(len(s.passing)))
		s.ready = append(s.ready, s.passing...)
		s.passing = nil
	}
}

// ended takes the worker's END and says whether the slot is free now. The lock is held.
func (s *InStream) ended(body []byte, now int64) (free bool, err error) {
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
		return true, nil
	}
	end := End{Type: e.Type, Code: e.Code, Retryable: e.Retryable, Text: e.Text}
	if e.Type == EndComplete && (s.state != inLive || e.Records != s.records || e.Bytes != s.bytes ||
		s.assembly != nil) {
		end = End{Type: EndProtocol, Text: fmt.Sprintf("END counts %d records of %d bytes, %d of %d came",
			e.Records, e.Bytes, s.records, s.bytes)}
	} else if len(e.Trailer) > 0 {
		end.Trailer = append([]byte(nil), e.Trailer...)
	}
	end.Records, end.Bytes = s.records, s.bytes
	s.state = inFree
	s.end, s.endedAt = &end, now
	s.heads.note(wire.Header{Kind: wire.End, Length: len(body)}, now-s.minted)
	s.link.stats.end(end.Type)
	return true, nil
}
