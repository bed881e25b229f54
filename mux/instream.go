package mux

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

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
	// inlineBuffer is the room for records inside the stream itself: what one pass brings needs no allocation.
	inlineBuffer = 240
	// slowSink is how long a sink call may take before it is counted.
	slowSink = 10 * time.Millisecond
	prefix   = 4 // each buffered record has its length before it
)

// Sink takes the records of one stream as they come, on the lane's reader: one call per stream and read, never two at a
// time for a stream, in order. records are valid during the call, and it must not wait: no Next, NextBatch or Wait of its
// stream, no Close of the Receiver; Stop, Kill and Close of its stream are allowed. end is set with the last call, which
// comes once, unless the stream was closed before. False says "not now": the records of this call stay buffered, and the
// stream is pulled until NextBatch finds it empty.
type Sink func(records [][]byte, end *End) bool

// PassSink is a Sink that is also told of the pass that it is called in.
type PassSink func(pass *Pass, records [][]byte, end *End) bool

// InStream is one response at the frontend. One goroutine at a time may call Next or NextBatch; Stop, Kill and Close may
// be called by any.
type InStream struct {
	element
	link   *inLink
	slot   wire.Slot
	number uint64
	key    uint64
	window uint64
	terms  []byte

	mu        sync.Mutex
	state     inState
	lane      *lane // nil: stranded until a lane is up
	move      uint32
	wants     want
	stopAsked bool
	received  uint64 // offset in the stream's string
	unread    uint64 // bytes of the string that the application has not taken
	reported  uint64 // what the worker has been told, or will be
	records   uint64
	bytes     uint64
	end       *End
	closed    bool // Close was called
	dropped   bool // records that waited were dropped
	charged   bool // the window is committed
	cut       bool // the link has been down for long while there is no record

	// Node times for the ticker, 0 = none: when the first record must be here, when the whole stream must have ended, and
	// how long may pass between records.
	firstBy    int64
	endBy      int64
	inactivity int64
	lastData   int64
	// Node times for Inspect: of the mint, the first record and the end.
	minted, firstData, endedAt int64

	ready    []byte // records that wait: length u32, payload
	readyN   int
	taken    []byte // what the application holds
	views    [][]byte
	next     int // Next's place in views
	assembly []byte
	extra    int // bytes charged for records that are assembled

	waiting   bool
	wake      chan struct{}   // capacity 1, made by the first wait
	watched   <-chan struct{} // Done of the context that the consumer waits with
	stopWatch func() bool
	touched   bool // on the reader's list of this read

	sink      PassSink
	sinkViews [][]byte
	pulled    bool // the sink said "not now"
	inSink    bool
	told      bool // the sink has had the end

	stay  stay   // on the lane that it is on, or was on last
	past  []stay // before, oldest first
	heads heads
	room  [2][inlineBuffer]byte
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

// OnRecords sets the sink, which is not nil. Records that wait already are given to NextBatch, so call it before the terms
// are sent.
func (s *InStream) OnRecords(sink Sink) {
	s.OnPass(func(_ *Pass, records [][]byte, end *End) bool { return sink(records, end) })
}

// OnPass is OnRecords for a sink that wants to know its pass.
func (s *InStream) OnPass(sink PassSink) {
	s.mu.Lock()
	s.sink = sink
	s.pulled = s.readyN > 0 || s.end != nil
	s.mu.Unlock()
}

// Next returns the next record, waiting for it. It is valid until the next call. After the last record it returns io.EOF
// if the stream is complete, else an *EndError; or ctx's error.
func (s *InStream) Next(ctx context.Context) ([]byte, error) {
	if s.next < len(s.views) {
		s.next++
		return s.views[s.next-1], nil
	}
	batch, err := s.NextBatch(ctx)
	if err != nil || len(batch) == 0 { // none: the sink has the stream
		return nil, err
	}
	s.next = 1
	return batch[0], nil
}

// NextBatch returns all records that are ready, at least one, waiting when there is none. They are valid until the next
// call and count as consumed. The end is reported as by Next. With a sink it waits for a call of it that is under way and for
// nothing else: nothing and no error says that the stream is empty and the sink has it again.
func (s *InStream) NextBatch(ctx context.Context) ([][]byte, error) {
	for {
		s.mu.Lock()
		if s.inSink { // it may be saying "not now", and then its records are this call's
			if err := s.await(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if s.readyN > 0 {
			batch := s.take()
			l := s.credit()
			s.mu.Unlock()
			if l != nil {
				l.flush(writeFlush)
			}
			s.next = len(batch)
			return batch, nil
		}
		if s.end != nil {
			err := endError(s.end)
			if s.dropped && err == io.EOF { // what is left of it must not look complete
				err = &EndError{End: closedByConsumer}
			}
			s.uncharge()
			s.unwatch()
			s.mu.Unlock()
			return nil, err
		}
		if s.sink != nil {
			s.pulled = false
			s.mu.Unlock()
			return nil, nil
		}
		if err := s.await(ctx); err != nil {
			return nil, err
		}
	}
}

// ErrLinkDown is what Wait returns when the link has been without a lane for so long that a request that has no record yet
// is better sent elsewhere.
var ErrLinkDown = errors.New("mux: the link to the worker is down")

// Wait waits until a record is ready or the stream has ended, whichever way; it takes nothing. It fails with ErrLinkDown
// or ctx's error.
func (s *InStream) Wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.readyN > 0 || s.end != nil {
			s.mu.Unlock()
			return nil
		}
		if s.cut && s.lane == nil {
			s.mu.Unlock()
			return ErrLinkDown
		}
		if err := s.await(ctx); err != nil {
			return err
		}
	}
}

// await waits to be woken. The lock is held and let go.
func (s *InStream) await(ctx context.Context) error {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	s.watch(ctx)
	if err := ctx.Err(); err != nil {
		s.mu.Unlock()
		return err
	}
	s.waiting = true
	s.mu.Unlock()
	<-s.wake
	return nil
}

// watch has the end of ctx wake the stream's consumer. It is set once for a context, so that a wait is a receive from one
// channel: a select costs a third of all that pulling costs. The lock is held.
func (s *InStream) watch(ctx context.Context) {
	done := ctx.Done()
	if done == s.watched {
		return
	}
	s.unwatch()
	if done != nil {
		s.watched = done
		s.stopWatch = context.AfterFunc(ctx, func() {
			s.mu.Lock()
			s.rouse()
			s.mu.Unlock()
		})
	}
}

// unwatch forgets the context. The lock is held.
func (s *InStream) unwatch() {
	if s.stopWatch != nil {
		s.stopWatch()
		s.watched, s.stopWatch = nil, nil
	}
}

func endError(end *End) error {
	if end.Type == EndComplete {
		return io.EOF
	}
	return &EndError{End: *end}
}

// take hands over what is ready: the two buffers change places. The lock is held.
func (s *InStream) take() [][]byte {
	s.ready, s.taken = s.taken[:0], s.ready
	if cap(s.ready) > s.link.cfg.ShrinkThreshold {
		s.ready = nil // not the room inside the stream: taken may be there
	}
	s.views = view(s.views[:0], s.taken)
	s.readyN, s.unread = 0, 0
	s.refund()
	return s.views
}

// view appends slices of the records in b.
func view(views [][]byte, b []byte) [][]byte {
	for len(b) > 0 {
		n := int(binary.LittleEndian.Uint32(b))
		views = append(views, b[prefix:prefix+n:prefix+n])
		b = b[prefix+n:]
	}
	return views
}

// credit notes that CONSUMED is due, at half a window, and returns the lane to flush. The lock is held.
func (s *InStream) credit() *lane {
	if s.state != inLive {
		return nil
	}
	consumed := s.received - s.unread
	if consumed-s.reported < s.window/2 {
		return nil
	}
	s.reported = consumed
	s.wants |= wantConsumed
	if s.lane != nil {
		s.lane.enqueue(&s.element, 0, false)
	}
	return s.lane
}

// tell notes what the worker must hear and returns the lane to flush. The lock is held.
func (s *InStream) tell(w want) *lane {
	s.wants |= w
	if s.lane != nil {
		s.lane.enqueue(&s.element, 0, true)
	}
	return s.lane
}

// Stop asks the worker to finish its last output and complete. It does nothing once the stream has ended.
func (s *InStream) Stop() {
	s.mu.Lock()
	if s.stopAsked || s.state == inClosing || s.state == inFree {
		s.mu.Unlock()
		return
	}
	s.stopAsked = true
	l := s.tell(wantStop)
	s.mu.Unlock()
	if l != nil {
		l.flush(writeUrgent)
	}
}

// Kill ends the stream now, with the end given unless it has one. What is buffered is dropped. It reaches the engine before
// the first record as well as after it, and does nothing when the worker has ended the stream. A sink is told by the lane's
// reader, at the latest when the worker's END comes.
func (s *InStream) Kill(end End) {
	s.mu.Lock()
	l := s.kill(end)
	s.mu.Unlock()
	if l != nil {
		l.flush(writeUrgent)
	}
}

// kill is Kill with the lock held; it returns the lane to flush.
func (s *InStream) kill(end End) (l *lane) {
	if s.state == inMinted || s.state == inLive {
		s.state = inClosing
		l = s.tell(wantKill)
		s.link.closing.Add(1)
	}
	if s.end == nil {
		s.finish(end)
		s.drop()
	}
	s.uncharge()
	return l
}

// drop forgets what waits for the application. The lock is held.
func (s *InStream) drop() {
	if s.inSink {
		return // the reader is using the buffer and will see the end
	}
	s.dropped = s.dropped || s.readyN > 0
	s.ready, s.readyN, s.unread, s.assembly = s.ready[:0], 0, 0, nil
	s.refund()
}

// finish gives the application its end. The lock is held.
func (s *InStream) finish(end End) {
	end.Records, end.Bytes = s.records, s.bytes
	s.end, s.endedAt = &end, s.link.now()
	s.link.stats.end(end.Type)
	s.rouse()
}

// rouse wakes the consumer if it waits. The lock is held; the send never waits.
func (s *InStream) rouse() {
	if s.waiting {
		s.waiting = false
		s.link.stats.wakes.Add(1)
		signal(s.wake)
	}
}

// overdue ends a stream whose time is up and returns the lane to flush. The lock is held.
func (s *InStream) overdue(now int64) (l *lane, late bool) {
	if s.end != nil {
		return nil, false
	}
	text := ""
	switch {
	case s.endBy != 0 && now >= s.endBy:
		text = "the request's deadline has passed"
	case s.firstBy != 0 && s.records == 0 && now >= s.firstBy:
		text = "no first record in time"
	case s.inactivity != 0 && s.records > 0 && now-s.lastData >= s.inactivity:
		text = "no further record in time"
	default:
		return nil, false
	}
	return s.kill(End{Type: EndDeadline, Text: text}), true
}

// uncharge gives the window back to the total. The lock is held.
func (s *InStream) uncharge() {
	if s.charged {
		s.charged = false
		s.link.recv.committed.Add(-int64(s.window))
	}
	if s.end != nil {
		s.assembly = nil // of a record that will never be whole
	}
	s.refund()
}

// chargeMore takes n bytes of the total for a record that is assembled: they have left the window. The lock is held.
func (s *InStream) chargeMore(n int) bool {
	total := &s.link.recv.committed
	if total.Add(int64(n)) > s.link.cfg.MaxBuffered {
		total.Add(-int64(n))
		return false
	}
	s.extra += n
	return true
}

// refund gives back what was charged for assembled records that the application has. The lock is held.
func (s *InStream) refund() {
	if n := s.extra - len(s.assembly); n > 0 {
		s.extra -= n
		s.link.recv.committed.Add(-int64(n))
	}
}

var closedByConsumer = End{Type: EndKilled, Text: "closed by the consumer"}

// Close gives the stream back; one that has not ended is killed. Idempotent.
func (s *InStream) Close() error {
	s.Kill(closedByConsumer)
	s.mu.Lock()
	s.closed = true
	s.unwatch()
	s.drop()
	s.mu.Unlock()
	return nil
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
