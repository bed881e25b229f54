package pipe

import (
	"fmt"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// broken says what does not hold in the pipe's state, "" = nothing. The lock is held; between two holds of it all of
// this is true at any time.
func (p *Pipe) broken() string {
	refs := make(map[*chunk]int)
	for i := range p.places {
		q := &p.places[i]
		if q.open != nil {
			refs[q.open]++
		}
		bytes, data := 0, 0
		var ends []mark
		at := q.appended - uint64(q.bytes)
		for _, s := range q.unsent.all() {
			refs[s.c]++
			bytes += s.to - s.from
			for b := s.bytes(); len(b) > 0; {
				h := wire.ParseHeader(b)
				size := wire.HeaderSize + h.Length
				if b, at = b[size:], at+uint64(size); h.Kind == wire.Data {
					data++
				} else if h.Kind == wire.End {
					ends = append(ends, mark{at, h.Slot})
				}
			}
		}
		if bytes != q.bytes || data != q.records || fmt.Sprint(ends) != fmt.Sprint(q.marks.all()) {
			return fmt.Sprintf("place %d has %d bytes, %d DATA and the ENDs %v, it says %d, %d and %v", i, bytes, data,
				ends, q.bytes, q.records,
				q.marks.all())
		}
	}
	at := p.sealed
	for i, s := range p.segments.all() {
		refs[s.c]++
		if i == 0 {
			if at = s.at; at > p.acked || s.end() <= p.acked {
				return fmt.Sprintf("acknowledged are %d bytes, the log begins with [%d, %d)", p.acked, at, s.end())
			}
		}
		if s.at != at {
			return fmt.Sprintf("segment %d of the log begins at %d, the one before it ends at %d", i, s.at, at)
		}
		at = s.end()
	}
	if at != p.sealed || p.acked > p.cursor || p.cursor > p.sealed || !p.begins(p.cursor) {
		return fmt.Sprintf("acked %d, cursor %d, sealed %d; the log ends at %d", p.acked, p.cursor, p.sealed, at)
	}
	for _, c := range p.batch.held {
		refs[c]++
	}
	for c, n := range refs {
		if c.refs != n {
			return fmt.Sprintf("a chunk counts %d references and has %d", c.refs, n)
		}
	}
	if n := p.cfg.Budget.out; n != len(refs) {
		return fmt.Sprintf("%d chunks are out, the pipe has %d", n, len(refs))
	}
	return ""
}
