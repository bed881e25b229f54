package mux

import (
	"context"
	"fmt"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// TryPut appends a record, or returns ErrWindowFull without waiting; then the function given to OnWritable is called
// once there is room. It wakes nobody: a later Flush, of this stream or of the WorkerNode, sends it. A record of more
// than half the window, headers included, is ErrRecordTooLarge: there might never be room for all of it at once. rec
// may be reused.
func (s *OutStream) TryPut(rec []byte) error {
	n := wire.HeaderSize + len(rec)
	if n > int(s.maxData) {
		return s.tryPutLarge(rec)
	}
	s.pipe.Lock()
	if err := s.check(); err != nil {
		s.pipe.Unlock()
		return err
	}
	if !s.fits(n) {
		return s.full()
	}
	s.data(wire.Data, rec)
	s.pipe.Unlock()
	return nil
}

// full notes that somebody wants room and lets the lock go.
func (s *OutStream) full() error {
	if !s.starved {
		s.starved = true
		s.lane.link.stats.stalls.Add(1)
	}
	// Only for what is unsent: a consumer that has stopped must not cost the lane's other streams their batches.
	if s.behind || s.share() > 0 {
		s.pipe.Hurry()
	}
	s.pipe.Unlock()
	return ErrWindowFull
}

func (s *OutStream) tryPutLarge(rec []byte) error {
	if err := s.assembles(rec); err != nil {
		return err
	}
	part := int(s.maxData) - wire.HeaderSize
	size := len(rec) + (len(rec)+part-1)/part*wire.HeaderSize
	s.pipe.Lock()
	if err := s.check(); err != nil {
		s.pipe.Unlock()
		return err
	}
	if size > int(s.window/2) { // up to half a window may be consumed and not reported
		s.pipe.Unlock()
		return fmt.Errorf("%w: %d bytes do not fit half the window of %d at once; Put and Send send it in parts",
			ErrRecordTooLarge, len(rec), s.window)
	}
	if !s.fits(size) {
		return s.full()
	}
	rest := rec
	for ; len(rest) > part; rest = rest[part:] {
		s.data(wire.DataMore, rest[:part])
	}
	s.data(wire.Data, rest)
	s.pipe.Unlock()
	return nil
}

// Put appends a record and waits while the window is full; what is queued is flushed before it waits. A larger record
// goes as fragments; a context that ends in the middle of one fails the stream, because the record cannot be taken
// back. It wakes nobody else: a later Flush sends the record.
func (s *OutStream) Put(ctx context.Context, rec []byte) error {
	part := int(s.maxData) - wire.HeaderSize
	if len(rec) <= part {
		return s.putPart(ctx, wire.Data, rec)
	}
	if err := s.assembles(rec); err != nil {
		return err
	}
	rest := rec
	for ; len(rest) > part; rest = rest[part:] {
		if err := s.partOrFail(ctx, wire.DataMore, rest[:part], len(rest) < len(rec)); err != nil {
			return err
		}
	}
	return s.partOrFail(ctx, wire.Data, rest, true)
}

// assembles refuses a record that the receiver would not assemble: it would end the stream.
func (s *OutStream) assembles(rec []byte) error {
	if most := s.lane.link.cfg.MaxRecord; len(rec) > most {
		return fmt.Errorf("%w: %d bytes, the longest record has %d", ErrRecordTooLarge, len(rec), most)
	}
	return nil
}

func (s *OutStream) partOrFail(ctx context.Context, k wire.Kind, part []byte, begun bool) error {
	err := s.putPart(ctx, k, part)
	if err != nil && begun && ctx.Err() != nil {
		_ = s.Fail(End{Type: EndFailed, Text: "a record was given up half way: " + ctx.Err().Error()})
	}
	return err
}

// putPart appends one DATA or DATA_MORE, waiting for room.
func (s *OutStream) putPart(ctx context.Context, k wire.Kind, part []byte) error {
	for {
		s.pipe.Lock()
		if err := s.check(); err != nil {
			s.pipe.Unlock()
			return err
		}
		if s.fits(wire.HeaderSize + len(part)) {
			s.data(k, part)
			s.pipe.Unlock()
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
func (s *OutStream) Flush() { s.pipe.Flush(pipe.ByFlush) }

// OnWritable sets what is called, once after each ErrWindowFull, when the window has room again or the stream has
// ended. It runs on a lane's reader and must not block.
func (s *OutStream) OnWritable(fn func()) {
	s.pipe.Lock()
	s.onWritable = fn
	s.pipe.Unlock()
}

// Complete ends the stream: all records were written. The trailer (at most 16 KiB) travels in the END. It needs no
// window and is flushed at once.
func (s *OutStream) Complete(trailer []byte) error {
	return s.Fail(End{Type: EndComplete, Trailer: trailer})
}

// Fail ends the stream otherwise, and flushes.
func (s *OutStream) Fail(end End) error {
	err := s.PutEnd(end)
	s.Flush()
	return err
}

// PutEnd ends the stream with any end and wakes nobody: a later Flush sends it, with what the rest of the pass has
// Put. It needs no window. Records and Bytes of the End are filled in. A type of end that there is not is refused.
func (s *OutStream) PutEnd(end End) error {
	if len(end.Trailer) > wire.MaxEndTrailer {
		return fmt.Errorf("%w: the trailer has %d bytes, at most %d are allowed",
			ErrRecordTooLarge, len(end.Trailer), wire.MaxEndTrailer)
	}
	if !end.Type.Valid() {
		return fmt.Errorf("mux: a stream cannot end with type %d", end.Type)
	}
	s.pipe.Lock()
	defer s.pipe.Unlock()
	if err := s.check(); err != nil {
		return err
	}
	s.putEnd(end)
	s.lane.link.stats.end(end.Type)
	return nil
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
	s.pipe.Lock()
	defer s.pipe.Unlock()
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
	s.pipe.Lock()
	idle := !s.begun && s.cut(End{Type: EndRefused}, &fx)
	s.pipe.Unlock()
	if idle {
		s.lane.link.uncommit(s)
	}
	fx.run()
}
