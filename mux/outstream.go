package mux

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
)

// outState is the state of a worker's stream; DESIGN.md 6 and docs/wire.md have the table.
type outState uint8

const (
	outEarly  outState = iota // RESUME or STOP came before the request
	outOpen                   // records may be appended
	outEnded                  // END is in the ring
	outClosed                 // nothing is kept; at most the END that answers a KILL is still owed
)

// OutStream is one response at the worker: a string of bytes (OPEN, DATA.., END, headers included) of which
// [consumed, tail) is kept in a ring. The ring is the send queue: a lane queues the stream, not its bytes.
//
// Its writing methods (Put, TryPut, Send, TrySend, Complete, Fail) may be called by one goroutine at a time; Flush, Err,
// Done, Stopping and OnWritable by any.
type OutStream struct {
	// A worker with a thousand streams finds none of this in its caches when a pass comes to it, and fetching it is most of what a
	// record costs. So what a record's way touches stands first, in three lines of memory (TestOutStreamIsCompact).
	element
	mu       sync.Mutex
	lane     *lane
	end      atomic.Pointer[EndError] // set when the other side, or the plane, ended the stream
	cursor   uint64
	urgentTo uint64 // what is unsent below this offset is urgent
	records  uint64
	bytes    uint64
	answer   *wire.EndBody // END that a KILL or RESUME asked for, outside the string
	pending  int32         // DATA records between cursor and tail
	window   uint32
	maxData  int32
	slot     wire.Slot
	stopped  atomic.Bool
	state    outState
	starved  bool  // ErrWindowFull was returned and no room told since
	ahead    ahead // the lane's lock guards it
	ring     ring  // base is what the frontend has consumed

	link       *outLink
	number     uint64
	key        uint64
	deadline   time.Time // zero: none
	move       uint32
	strandAt   int64  // node time since when the stream has no live lane; 0 = it has one
	high       uint64 // the highest cursor that a RESUME has set back
	endSerial  uint64
	onWritable func()
	room       chan struct{} // capacity 1: for Put that waits
	done       chan struct{} // made by Done
	_          [40]byte      // to 384 bytes: objects of that size begin at a line of memory
}

// sent is the highest cursor ever: what the frontend may have received. The lock is held.
func (s *OutStream) sent() uint64 { return max(s.high, s.cursor) }

// appendRecord adds a header and a body to the string. The lock is held.
func (s *OutStream) appendRecord(k wire.Kind, body []byte) {
	if s.ring.tail == 0 {
		var open [wire.HeaderSize + wire.OpenSize]byte
		s.ring.append(wire.AppendOpen(open[:0], s.slot, s.number, s.key))
	}
	if free := s.ring.free(); len(free) >= wire.HeaderSize+len(body) {
		wire.PutHeader(free, k, len(body), s.slot)
		copy(free[wire.HeaderSize:], body)
		s.ring.tail += uint64(wire.HeaderSize + len(body))
		return
	}
	var head [wire.HeaderSize]byte
	wire.PutHeader(head[:], k, len(body), s.slot)
	s.ring.append(head[:])
	s.ring.append(body)
}

// need is how much of the window n bytes of body take, with the OPEN that the first record brings along.
func (s *OutStream) need(n int) uint64 {
	if s.ring.tail == 0 {
		n += wire.HeaderSize + wire.OpenSize
	}
	return uint64(n + wire.HeaderSize)
}

// queue gives what was appended since from to the stream's lane. The lock is held.
func (s *OutStream) queue(from uint64) {
	first := from == 0
	n := int(s.ring.tail - from)
	if first && n <= urgentFirst+wire.OpenSize+2*wire.HeaderSize {
		s.urgentTo = s.ring.tail
	}
	if s.lane != nil {
		s.lane.enqueueNext(s, n, s.cursor < s.urgentTo && !s.link.node.cfg.NoUrgent)
	}
}

// check says why nothing more may be written. The lock is held.
func (s *OutStream) check() error {
	if e := s.end.Load(); e != nil {
		return e
	}
	if s.state != outOpen {
		return ErrEnded
	}
	return nil
}

// TryPut appends a record, or returns ErrWindowFull without waiting; then the function given to OnWritable is called once
// there is room. It wakes nobody: a later Flush, of this stream or of the Sender, sends it. A record of more than half the
// window, headers included, is ErrRecordTooLarge: there might never be room for all of it at once. rec may be reused.
func (s *OutStream) TryPut(rec []byte) error {
	if len(rec)+wire.HeaderSize > int(s.maxData) {
		return s.tryPutLarge(rec)
	}
	s.mu.Lock()
	if err := s.check(); err != nil {
		s.mu.Unlock()
		return err
	}
	if s.ring.tail+s.need(len(rec))-s.ring.base > uint64(s.window) {
		return s.full()
	}
	from := s.ring.tail
	s.appendRecord(wire.Data, rec)
	s.counted(len(rec))
	s.queue(from)
	s.mu.Unlock()
	return nil
}

// counted counts one whole record. The lock is held.
func (s *OutStream) counted(n int) {
	s.pending++
	s.records++
	s.bytes += uint64(n)
}

// full notes that somebody wants room and lets the lock go.
func (s *OutStream) full() error {
	if !s.starved {
		s.starved = true
		s.link.node.stats.stalls.Add(1)
	}
	// Only for what is unsent: a consumer that has stopped must not cost the lane's other streams their batches.
	if s.lane != nil && s.cursor < s.ring.tail && !s.link.node.cfg.NoUrgent {
		s.lane.hasten()
	}
	s.mu.Unlock()
	return ErrWindowFull
}

func (s *OutStream) tryPutLarge(rec []byte) error {
	if err := s.assembles(rec); err != nil {
		return err
	}
	body := int(s.maxData) - wire.HeaderSize
	fragments := (len(rec) + body - 1) / body
	s.mu.Lock()
	if err := s.check(); err != nil {
		s.mu.Unlock()
		return err
	}
	if uint64(len(rec)+fragments*wire.HeaderSize) > uint64(s.window/2) { // up to half a window may be consumed and not reported
		s.mu.Unlock()
		return fmt.Errorf("%w: %d bytes do not fit half the window of %d at once; Put and Send send it in parts", ErrRecordTooLarge, len(rec), s.window)
	}
	size := s.need(len(rec)) + uint64((fragments-1)*wire.HeaderSize)
	if s.ring.tail+size-s.ring.base > uint64(s.window) {
		return s.full()
	}
	from := s.ring.tail
	for rest := rec; len(rest) > 0; {
		n := min(body, len(rest))
		k := wire.DataMore
		if n == len(rest) {
			k = wire.Data
		}
		s.appendRecord(k, rest[:n])
		rest = rest[n:]
	}
	s.counted(len(rec))
	s.queue(from)
	s.mu.Unlock()
	return nil
}

// Put appends a record and waits while the window is full; what is queued is flushed before it waits. A larger record
// goes as fragments; a context that ends in the middle of one fails the stream, because the record cannot be taken back.
// It wakes nobody else: a later Flush sends the record.
func (s *OutStream) Put(ctx context.Context, rec []byte) error {
	body := int(s.maxData) - wire.HeaderSize
	if len(rec) <= body {
		return s.putPart(ctx, wire.Data, rec, len(rec))
	}
	if err := s.assembles(rec); err != nil {
		return err
	}
	for rest := rec; ; {
		n := min(body, len(rest))
		if n == len(rest) {
			return s.partOrFail(ctx, wire.Data, rest, len(rec), true)
		}
		if err := s.partOrFail(ctx, wire.DataMore, rest[:n], 0, len(rest) < len(rec)); err != nil {
			return err
		}
		rest = rest[n:]
	}
}

// assembles refuses a record that the receiver would not assemble: it would end the lane, and with it the streams of others.
func (s *OutStream) assembles(rec []byte) error {
	if most := s.link.cfg.MaxRecord; len(rec) > most {
		return fmt.Errorf("%w: %d bytes, the longest record has %d", ErrRecordTooLarge, len(rec), most)
	}
	return nil
}

func (s *OutStream) partOrFail(ctx context.Context, k wire.Kind, part []byte, whole int, begun bool) error {
	err := s.putPart(ctx, k, part, whole)
	if err != nil && begun && ctx.Err() != nil {
		_ = s.Fail(End{Type: EndFailed, Retryable: false, Text: "a record was given up half way: " + ctx.Err().Error()})
	}
	return err
}

// putPart appends one DATA or DATA_MORE, waiting for room.
func (s *OutStream) putPart(ctx context.Context, k wire.Kind, part []byte, whole int) error {
	for {
		s.mu.Lock()
		if err := s.check(); err != nil {
			s.mu.Unlock()
			return err
		}
		if s.ring.tail+s.need(len(part))-s.ring.base <= uint64(s.window) {
			from := s.ring.tail
			s.appendRecord(k, part)
			if k == wire.Data {
				s.counted(whole)
			}
			s.queue(from)
			s.mu.Unlock()
			return nil
		}
		if s.room == nil {
			s.room = make(chan struct{}, 1)
		}
		room := s.room
		_ = s.full()
		s.Flush()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Send is Put and Flush.
func (s *OutStream) Send(ctx context.Context, rec []byte) error {
	err := s.Put(ctx, rec)
	s.Flush()
	return err
}

// TrySend is TryPut and Flush.
func (s *OutStream) TrySend(rec []byte) error {
	if err := s.TryPut(rec); err != nil {
		return err
	}
	s.Flush()
	return nil
}

// Flush has what the stream's lane holds written, this stream's records and those of others. On plane tcp it may write
// itself, without blocking.
func (s *OutStream) Flush() {
	s.mu.Lock()
	l := s.lane
	s.mu.Unlock()
	if l != nil {
		l.flush(writeFlush)
	}
}

// OnWritable sets what is called, once after each ErrWindowFull, when the window has room again or the stream has ended.
// It runs on a lane's reader and must not block.
func (s *OutStream) OnWritable(fn func()) {
	s.mu.Lock()
	s.onWritable = fn
	s.mu.Unlock()
}

// Complete ends the stream: all records were written. The trailer (at most 16 KiB) travels in the END. It needs no window
// and is flushed at once.
func (s *OutStream) Complete(trailer []byte) error {
	return s.Fail(End{Type: EndComplete, Trailer: trailer})
}

// Fail ends the stream otherwise, and flushes.
func (s *OutStream) Fail(end End) error {
	err := s.PutEnd(end)
	s.Flush()
	return err
}

// PutEnd ends the stream with any end and wakes nobody: a later Flush sends it, with what the rest of the pass has Put. It
// needs no window. Records and Bytes of the End are filled in.
func (s *OutStream) PutEnd(end End) error {
	if len(end.Trailer) > wire.MaxEndTrailer {
		return fmt.Errorf("%w: the trailer has %d bytes, at most %d are allowed", ErrRecordTooLarge, len(end.Trailer), wire.MaxEndTrailer)
	}
	s.mu.Lock()
	if err := s.check(); err != nil {
		s.mu.Unlock()
		return err
	}
	s.appendEnd(end)
	s.mu.Unlock()
	return nil
}

// appendEnd puts END into the ring. The lock is held and the state is open.
func (s *OutStream) appendEnd(end End) {
	body := wire.EndBody{Number: s.number, Type: end.Type, Retryable: end.Retryable, Code: end.Code,
		Records: s.records, Bytes: s.bytes, Text: end.Text, Trailer: end.Trailer}
	from := s.ring.tail
	if from == 0 {
		var open [wire.HeaderSize + wire.OpenSize]byte
		s.ring.append(wire.AppendOpen(open[:0], s.slot, s.number, s.key))
	}
	s.ring.append(wire.AppendEnd(make([]byte, 0, wire.EndSize(&body)), s.slot, &body))
	s.state = outEnded
	s.queue(from)
	s.link.node.stats.end(end.Type)
}

// Err is nil while records are wanted, and an *EndError once the other side, or the plane, has ended the stream. One
// atomic load.
func (s *OutStream) Err() error {
	if e := s.end.Load(); e != nil {
		return e
	}
	return nil
}

// Stopping says whether the consumer asked the engine to finish its last output and Complete.
func (s *OutStream) Stopping() bool { return s.stopped.Load() }

// Done is closed when the other side, or the plane, has ended the stream.
func (s *OutStream) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
		if s.end.Load() != nil {
			close(s.done)
		}
	}
	return s.done
}

// Deadline is when the frontend gives up, by this node's clock.
func (s *OutStream) Deadline() (time.Time, bool) { return s.deadline, !s.deadline.IsZero() }

// Abandon gives up a stream that was attached and will not be served: the request is answered otherwise. The slot waits
// for the KILL that follows every attempt that was given up.
func (s *OutStream) Abandon() {
	var fx effects
	s.link.mu.Lock()
	s.mu.Lock()
	if s.state == outOpen && s.ring.tail == 0 {
		s.close(End{Type: EndRefused}, &fx)
	}
	s.mu.Unlock()
	s.link.mu.Unlock()
	fx.run()
}

// wakeup tells who waits for room. The lock is held.
func (s *OutStream) wakeup(fx *effects) {
	if !s.starved {
		return
	}
	s.starved = false
	if room := s.room; room != nil {
		fx.add(func() { signal(room) })
	}
	if s.onWritable != nil {
		fx.add(s.onWritable)
	}
}

// close forgets the stream's bytes and tells the engine, unless it has ended the stream itself. The locks of link and
// stream are held.
func (s *OutStream) close(end End, fx *effects) {
	if s.state == outClosed {
		return
	}
	before := s.state
	if s.lane != nil {
		s.lane.dequeue(&s.element, int(s.ring.tail-s.cursor))
		s.lane.closed()
		s.lane = nil
	}
	s.ring.release(s.ring.tail)
	s.cursor, s.pending, s.state = s.ring.tail, 0, outClosed
	if before == outEarly {
		s.link.early--
		return
	}
	s.link.sender.uncommit(uint64(s.window))
	s.link.live--
	if before != outOpen {
		return
	}
	end.Records, end.Bytes = s.records, s.bytes
	s.end.Store(&EndError{End: end})
	s.link.stats.end(end.Type)
	if done := s.done; done != nil {
		fx.add(func() { close(done) })
	}
	s.wakeup(fx)
}
