package mux

import (
	"unsafe"

	"github.com/laneway-ai/laneway/mux/internal/prefetch"
)

// A pass puts a record on each of an engine's streams, in much the same order each time. By the time it comes round, nothing of a
// thousand streams is left in the caches, and fetching it takes longer than all that a record has to do. So each stream remembers
// where the one is that came two records after it in the last pass, and its own record asks for that one's memory.

// ahead is where a stream is and its next record goes. They are numbers, not pointers: nobody follows them, they keep nothing, and
// what has moved or is gone meanwhile is fetched for nothing.
type ahead struct{ stream, record uintptr }

// fetch asks for both.
func (a ahead) fetch() {
	if a.stream != 0 {
		prefetch.Write(a.stream, a.record)
	}
}

// here is where the stream is, for those before it. The lock is held.
func (s *OutStream) here() ahead {
	a := ahead{stream: uintptr(unsafe.Pointer(s))}
	a.record = a.stream
	if i := s.ring.tail - s.ring.begin; i < uint64(len(s.ring.room)) {
		a.record = uintptr(unsafe.Pointer(&s.ring.room[i]))
	}
	return a
}

// lately is the streams of the last two records that were put, the older one first. The lane's lock guards it, and the ahead of what
// stands in it; a stream that leaves the lane leaves it too.
type lately [2]*OutStream

// next notes that s had a record, and returns what came two records after it the last time.
func (p *lately) next(s *OutStream) ahead {
	if two := p[0]; two != nil {
		two.ahead = s.here()
	}
	p[0], p[1] = p[1], s
	return s.ahead
}

// leave forgets a stream.
func (p *lately) leave(e *element) {
	for i, s := range p {
		if s != nil && &s.element == e {
			p[i] = nil
		}
	}
}
