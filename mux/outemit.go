package mux

import "github.com/laneway-ai/laneway/internal/wire"

// emit implements outgoing.
func (s *OutStream) emit(l *lane, b []byte, room int) ([]byte, int, int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lane != l {
		return b, 0, 0, false
	}
	if s.answer != nil {
		b = wire.AppendEnd(b, s.slot, s.answer)
		s.answer, s.lane, s.endSerial = nil, nil, l.serial
		return b, 0, 0, false
	}
	avail := int(s.ring.tail - s.cursor)
	if avail == 0 {
		return b, 0, 0, false
	}
	n, records := avail, int(s.pending)
	switch {
	case s.cursor < s.urgentTo && s.urgentTo < s.ring.tail:
		n, records = s.whole(int(s.urgentTo - s.cursor))
	case avail > min(quantum, room):
		n, records = s.whole(min(quantum, room))
	}
	if n > room && room < bulkPerWrite {
		l.mu.Lock()
		l.placeFirst(&s.element)
		l.mu.Unlock()
		return b, 0, 0, true
	}
	b = s.ring.read(b, s.cursor, n)
	s.cursor += uint64(n)
	s.pending -= int32(records)
	if s.cursor == s.ring.tail {
		if s.state == outEnded {
			s.endSerial = l.serial
		}
		return b, records, n, false
	}
	l.mu.Lock()
	l.place(&s.element, false)
	l.mu.Unlock()
	return b, records, n, true
}

// whole is how many bytes from the cursor are whole records of at most limit bytes together, but at least one record.
func (s *OutStream) whole(limit int) (n, records int) {
	for at := s.cursor; at < s.ring.tail; {
		size, kind := s.recordAt(at)
		if n > 0 && n+size > limit {
			break
		}
		n += size
		at += uint64(size)
		if kind == wire.Data {
			records++
		}
	}
	return n, records
}

// recordAt is the size and kind of the record that begins at an offset below the tail. It never reaches past the tail,
// also where no record begins: a hostile frontend can name such an offset in a RESUME, and gets what it asked for. It cannot
// be told from a right one, because CONSUMED counts fragments while earlier records wait, so the ring may begin anywhere.
func (s *OutStream) recordAt(at uint64) (size int, kind wire.Kind) {
	rest := int(s.ring.tail - at)
	if rest < wire.HeaderSize {
		return rest, 0
	}
	var head [wire.HeaderSize]byte
	s.ring.peek(head[:], at)
	h := wire.ParseHeader(head[:])
	return min(wire.HeaderSize+h.Length, rest), h.Kind
}
