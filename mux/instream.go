package mux

import (
	"sync"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// inState is the state of a frontend's stream; DESIGN.md 6 and docs/wire.md have the table.
type inState uint8

const (
	inMinted  inState = iota // terms were given out, no OPEN yet
	inLive                   // a right OPEN came
	inClosing                // the application has its end, the slot waits for the worker's END
	inFree                   // the slot is free for others; what is buffered can still be read
)

// want is what a stream has to tell the worker: state, not a queue.
type want uint8

const (
	wantResume want = 1 << iota
	wantConsumed
	wantStop
	wantKill
)

const (
	// inlineBuffer is the room for records inside the stream itself: what one pass brings needs no allocation. A stream that is pulled
	// gets a second one of the same size, as the application may hold the first.
	inlineBuffer = 240
	prefix       = 4 // each buffered record has its length before it
)

// InStream is one response at the frontend. One goroutine at a time may call Next or NextBatch; Stop, Kill and Close may
// be called by any.
type InStream struct {
	// First what a record touches on its way to a sink, in the order of the lines of 64 bytes that it lies in; the allocator puts 8 bytes before
	// it. With thousands of streams each line comes from far away.
	mu       sync.Mutex
	slot     wire.Slot
	state    inState
	wants    want
	touched  bool // on the reader's list of this read
	waiting  bool
	pulled   bool // the sink said "not now"
	inSink   bool
	told     bool // the sink has had the end
	closed   bool // Close was called
	sunk     bool // there is a sink
	pieces   bool // extra is not 0
	window   uint32
	readyN   int32  // records that wait
	lane     *lane  // nil: stranded until a lane is up
	received uint64 // offset in the stream's string
	unread   uint64 // bytes of the string that the application has not taken

	reported uint64 // what the worker has been told, or will be
	link     *inLink
	records  uint64
	bytes    uint64
	// passing is the only record that waits, where the sink will take it at the end of this read: in the lane's buffer. What else would happen
	// to it, keep copies it first.
	passing []byte
	sink    Sink // or passSink

	passSink PassSink
	end      *End
	lastData int64
	minted   int64
	ready    []byte // the records that wait, but for passing: length u32, payload
	heads    heads

	extra    int           // bytes charged for records that are assembled
	assembly []byte        // fragments of a record
	wake     chan struct{} // capacity 1, made by the first wait
	room     [inlineBuffer]byte

	// From here what a stream needs now and then.
	element
	number uint64
	key    uint64
	terms  []byte

	// Node times for the ticker, 0 = none: when the first record must be here, when the whole stream must have ended, and
	// how long may pass between records.
	firstBy    int64
	endBy      int64
	inactivity int64

	endedAs   func(*End) error // what the sink gets of the end
	move      uint32
	stopAsked bool
	dropped   bool // records that waited were dropped
	charged   bool // the window is committed
	cut       bool // the link has been down for long while there is no record

	taken     []byte // what the application holds
	views     [][]byte
	next      int             // Next's place in views
	watched   <-chan struct{} // Done of the context that the consumer waits with
	stopWatch func() bool

	firstData, endedAt int64
	stay               stay   // on the lane that it is on, or was on last
	past               []stay // before, oldest first
}

// Terms are what the request must carry to the worker. They must not be changed.
func (s *InStream) Terms() []byte { return s.terms }

// Node is the worker's node.
func (s *InStream) Node() transport.NodeID { return s.link.peer.id }

// Lane is the plane and index of the lane that the stream is on, or was on last.
func (s *InStream) Lane() (plane string, index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stay.plane, s.stay.lane
}

// Opened says whether the worker has opened the stream or ended it.
func (s *InStream) Opened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state != inMinted || s.end != nil
}

// End is the stream's end, nil while it has none. Records that came before it may still be waiting.
func (s *InStream) End() *End {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// tell notes what the worker must hear and returns the lane to flush. The lock is held.
func (s *InStream) tell(w want) *lane {
	s.wants |= w
	if s.lane != nil {
		s.lane.enqueue(&s.element, 0, true)
	}
	return s.lane
}

// rouse wakes the consumer if it waits. The lock is held; the send never waits.
func (s *InStream) rouse() {
	if s.waiting {
		s.waiting = false
		s.link.stats.wakes.Add(1)
		signal(s.wake)
	}
}

// emit implements outgoing: the control that is due.
func (s *InStream) emit(l *lane, b []byte, _ int) ([]byte, int, int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lane != l {
		return b, 0, 0, false
	}
	w := s.wants
	s.wants = 0
	if w&wantResume != 0 {
		s.reported = s.received - s.unread
		b = wire.AppendResume(b, s.slot, wire.ResumeBody{Number: s.number, Move: s.move, Received: s.received, Consumed: s.reported})
		w &^= wantConsumed
	}
	if w&wantConsumed != 0 {
		b = wire.AppendConsumed(b, s.slot, s.reported)
	}
	if w&wantStop != 0 {
		b = wire.AppendNumber(b, wire.Stop, s.slot, s.number)
	}
	if w&wantKill != 0 {
		why := EndKilled
		if s.end != nil && s.end.Type != EndComplete {
			why = s.end.Type
		}
		b = wire.AppendKill(b, s.slot, s.number, why)
	}
	return b, 0, 0, false
}
