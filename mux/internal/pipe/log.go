package pipe

import (
	"sort"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// minLog is what a lane may keep when the process's budget is used up.
const minLog = 128 << 10

// sendLog is what was sealed and not acknowledged: [acked, sealed) of this side's string, of which the connection
// that is there was given everything before cursor. A peer may lie about what it has received, so acked can lie
// within a record; segments begin and end with records, and so does cursor.
type sendLog struct {
	segments              queue[logged]
	acked, cursor, sealed uint64
}

// logged is a segment of the string and where it begins there.
type logged struct {
	segment
	at uint64
}

func (s *logged) end() uint64 { return s.at + uint64(s.to-s.from) }

// seal adds a segment to the log and to the batch.
func (p *Pipe) seal(s segment) {
	p.hold(s)
	if k := p.segments.len(); k > 0 && p.segments.last().c == s.c && p.segments.last().to == s.from {
		p.segments.last().to = s.to
	} else {
		p.segments.push(logged{s, p.sealed})
		s.c.refs++
	}
	p.sealed += uint64(s.to - s.from)
	p.cursor = p.sealed
}

// room is how many bytes the log may still take.
func (p *Pipe) room() int {
	limit := p.cfg.LogLimit
	if p.cfg.Budget.over() {
		limit = min(limit, minLog)
	}
	return limit - int(p.sealed-p.acked)
}

// full says whether the log has no room for a record of any length.
func (p *Pipe) full() bool { return p.room() < wire.MaxData }

// acknowledge frees what the peer has received, which is at most sealed.
func (p *Pipe) acknowledge(received uint64) {
	if received <= p.acked {
		return
	}
	p.cfg.Budget.addLog(-int(received - p.acked))
	p.acked = received
	for p.segments.len() > 0 && p.segments.at(0).end() <= received {
		p.drop(p.segments.pop().c)
	}
	if p.fullSince != 0 && !p.full() {
		p.cfg.Stats.FullNanos.Add(uint64(max(p.cfg.Now()-p.fullSince, 0)))
		p.fullSince = 0
	}
}

// find is the index of the segment with the byte at of the string.
func (l *sendLog) find(at uint64) int {
	all := l.segments.all()
	return sort.Search(len(all), func(i int) bool { return all[i].end() > at })
}

// begins says whether a record begins at a place of the log, or the next one will.
func (l *sendLog) begins(at uint64) bool {
	if at == l.sealed {
		return true
	}
	s := l.segments.at(l.find(at))
	n, _ := fit(s.segment, int(at-s.at))
	return s.at+uint64(n) == at
}

// replay puts up to limit bytes of whole records from the cursor on into the batch.
func (p *Pipe) replay(limit int) {
	for i := p.find(p.cursor); i < p.segments.len(); i++ {
		s := p.segments.at(i)
		rest := segment{s.c, s.from + int(p.cursor-s.at), s.to}
		n, _ := fit(rest, limit)
		if n == 0 {
			return
		}
		p.hold(segment{rest.c, rest.from, rest.from + n})
		p.cursor += uint64(n)
		if limit -= n; p.cursor < s.end() {
			return
		}
	}
}
