package mux

import (
	"sync"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// inState is the state of a frontend's stream; docs/wire.md 6 has the table.
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
	wantConsumed want = 1 << iota
	wantStop
	wantKill
)

const (
	// inlineBuffer is the room for records inside the stream itself: what one pass brings needs no allocation. A
	// stream that is pulled gets a second one of the same size, as the application may hold the first.
	inlineBuffer = 240
	prefix       = 4 // each buffered record has its length before it
)

// InStream is one response at the frontend. It stays on one lane for its life. One goroutine at a time may call Next or
// NextBatch; Stop, Kill and Close may be called by any.
type InStream struct {
	// First what a record touches on its way to a sink, in the order of the lines of 64 bytes that it lies in. With
	// thousands of streams each line comes from far away.
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
	readyN   int32 // records that wait
	lane     *inLane
	received uint64 // bytes of DATA and DATA_MORE, headers included
	unread   uint64 // of them, what the application has not taken

	reported uint64 // what the worker has been told that was consumed, or will be
	link     *inLink
	records  uint64
	bytes    uint64
	// passing is the only record that waits, where the sink will take it at the end of this read: in the lane's buffer.
	// What else would happen to it, keep copies it first.
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
	owed   pipe.Owed
	number uint64
	key    uint64
	terms  []byte

	// Node times for the ticker, 0 = none: when the first record must be here, when the whole stream must have ended,
	// and how long may pass between records.
	firstBy    int64
	endBy      int64
	inactivity int64

	endedAs   func(*End) error // what the sink gets of the end
	stopAsked bool
	dropped   bool // records that waited were dropped
	charged   bool // the window is committed

	taken     []byte // what the application holds
	views     [][]byte
	next      int             // Next's place in views
	watched   <-chan struct{} // Done of the context that the consumer waits with
	stopWatch func() bool

	firstData, endedAt int64
}

// Terms are what the request must carry to the worker. They must not be changed.
func (s *InStream) Terms() []byte { return s.terms }

// Node is the worker's node.
func (s *InStream) Node() transport.NodeID { return s.link.link.Peer() }

// Lane is the plane and index of the stream's lane.
func (s *InStream) Lane() (plane string, index int) { return s.lane.lane().Plane(), s.lane.index }

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

// tell notes what the worker must hear; the lane must be flushed then. The lock is held.
func (s *InStream) tell(w want, at pipe.Place) {
	s.wants |= w
	s.lane.pipe.Owe(&s.owed, at)
}

// rouse wakes the consumer if it waits. The lock is held; the send never waits.
func (s *InStream) rouse() {
	if s.waiting {
		s.waiting = false
		s.link.stats.wakes.Add(1)
		signal(s.wake)
	}
}

// Emit implements pipe.Emitter: the control that is due.
func (s *InStream) Emit(p *pipe.Pipe) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.wants
	s.wants = 0
	var room [3 * (wire.HeaderSize + wire.ConsumedSize)]byte
	b := room[:0]
	if w&wantConsumed != 0 && s.state == inLive {
		b = wire.AppendConsumed(b, s.slot, s.number, s.reported)
	}
	if w&wantStop != 0 && s.state < inClosing {
		b = wire.AppendStop(b, s.slot, s.number)
	}
	if w&wantKill != 0 && s.state == inClosing {
		why := EndKilled
		if s.end != nil && s.end.Type != EndComplete {
			why = s.end.Type
		}
		b = wire.AppendKill(b, s.slot, s.number, why)
	}
	p.Lock()
	defer p.Unlock()
	for len(b) > 0 {
		h := wire.ParseHeader(b)
		size := wire.HeaderSize + h.Length
		p.Append(pipe.Urgent, h.Kind, h.Slot, b[wire.HeaderSize:size])
		b = b[size:]
	}
	return false
}
