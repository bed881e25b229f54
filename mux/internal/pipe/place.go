package pipe

import "github.com/laneway-ai/laneway/mux/internal/wire"

// Place says where a record waits for its write.
type Place uint8

// Urgent goes before Bulk, and does not wait for the gap.
const (
	Bulk Place = iota
	Urgent
)

// place is the records that wait to be sealed, in order.
type place struct {
	open    *chunk // takes the next record, nil = none
	unsent  queue[segment]
	bytes   int // of unsent
	records int // DATA among them

	appended uint64 // bytes ever, less those that were skipped
	marks    queue[mark]
}

// mark is an END, of which the layer above is told when it is sealed.
type mark struct {
	end  uint64 // place.appended behind it
	slot wire.Slot
}

func (p *Pipe) placeOf(at Place) *place {
	if p.cfg.NoUrgent {
		return &p.places[Bulk]
	}
	return &p.places[at]
}

// Reserve appends a record whose body has n bytes, at most one chunk with its header, and returns the body to be filled
// before the lock is let go. The lock is held.
func (p *Pipe) Reserve(at Place, k wire.Kind, s wire.Slot, n int) []byte {
	q := p.placeOf(at)
	size := wire.HeaderSize + n
	c := q.open
	if c == nil || len(c.b)+size > cap(c.b) {
		c = p.grow(q, size)
	}
	from := len(c.b)
	c.b = c.b[:from+size]
	b := c.b[from : from+size : from+size]
	wire.PutHeader(b, k, n, s)
	if q.unsent.len() > 0 && q.unsent.last().c == c {
		q.unsent.last().to = from + size
	} else {
		q.unsent.push(segment{c, from, from + size})
		c.refs++
	}
	q.bytes += size
	q.appended += uint64(size)
	switch k {
	case wire.Data:
		q.records++
	case wire.End:
		q.marks.push(mark{q.appended, s})
	}
	return b[wire.HeaderSize:]
}

// Append appends a record. The lock is held.
func (p *Pipe) Append(at Place, k wire.Kind, s wire.Slot, body []byte) {
	copy(p.Reserve(at, k, s, len(body)), body)
}

// AppendEnd appends an END. The lock is held.
func (p *Pipe) AppendEnd(at Place, s wire.Slot, e *wire.EndBody) {
	wire.AppendEndBody(p.Reserve(at, wire.End, s, wire.EndSize(e))[:0], e)
}

// grow opens a chunk for a record of size bytes: the fuller the lane, the larger.
func (p *Pipe) grow(q *place, size int) *chunk {
	if c := q.open; c != nil {
		if c.refs == 1 && size <= cap(c.b) { // all of it was sent and acknowledged
			c.b = c.b[:0]
			return c
		}
		p.drop(c)
	}
	kept := p.places[Bulk].bytes + p.places[Urgent].bytes + int(p.sealed-p.acked)
	c := p.cfg.Budget.get(min(max(size, kept/2), maxChunk))
	c.refs = 1
	q.open = c
	return c
}

// take moves up to limit bytes of whole records to the log's end and tells how many DATA they hold.
func (p *Pipe) take(q *place, limit int) (records int) {
	limit = min(limit, q.bytes)
	whole := limit == q.bytes
	for q.unsent.len() > 0 {
		s := *q.unsent.at(0)
		n := s.to - s.from
		if !whole {
			var r int
			n, r = fit(s, limit)
			records += r
		}
		if n == 0 {
			break
		}
		limit -= n
		q.bytes -= n
		if n == s.to-s.from {
			q.unsent.pop()
			p.seal(s)
			p.drop(s.c)
		} else {
			q.unsent.at(0).from += n
			p.seal(segment{s.c, s.from, s.from + n})
		}
	}
	if whole {
		records = q.records
	}
	q.records -= records
	sent := q.appended - uint64(q.bytes)
	for q.marks.len() > 0 && q.marks.at(0).end <= sent {
		p.ended = append(p.ended, q.marks.pop().slot)
	}
	return records
}

// fit is how many bytes of whole records of a segment fit into limit, and how many DATA are among them.
func fit(s segment, limit int) (n, records int) {
	for b := s.bytes(); len(b) > 0; {
		h := wire.ParseHeader(b)
		size := wire.HeaderSize + h.Length
		if n+size > limit {
			break
		}
		n += size
		b = b[size:]
		if h.Kind == wire.Data {
			records++
		}
	}
	return n, records
}

// skip takes the unsent records out of which the handler says that nobody wants them. ENDs stay.
func (p *Pipe) skip(q *place) {
	var kept queue[segment]
	ends := 0
	at := q.appended - uint64(q.bytes)
	for q.unsent.len() > 0 {
		s := q.unsent.pop()
		to := s.from
		for from := s.from; from < s.to; {
			h := wire.ParseHeader(s.c.b[from:])
			size := wire.HeaderSize + h.Length
			if h.Kind != wire.End && h.Slot != 0 && p.handler.Skips(h.Slot) {
				q.bytes -= size
				q.appended -= uint64(size)
				if h.Kind == wire.Data {
					q.records--
				}
				p.cfg.Stats.Skipped.Add(1)
			} else {
				to += copy(s.c.b[to:], s.c.b[from:from+size])
				at += uint64(size)
				if h.Kind == wire.End {
					q.marks.at(ends).end = at
					ends++
				}
			}
			from += size
		}
		if s.c == q.open && s.to == len(s.c.b) {
			s.c.b = s.c.b[:to]
		}
		if to > s.from {
			kept.push(segment{s.c, s.from, to})
		} else {
			p.drop(s.c)
		}
	}
	q.unsent = kept
}
