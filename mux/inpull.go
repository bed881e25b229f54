package mux

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
)

// Next returns the next record, waiting for it. It is valid until the next call. After the last record it returns
// io.EOF if the stream is complete, else an *EndError; or ctx's error.
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

// NextBatch returns all records that are ready, at least one, waiting when there is none. They are valid until the
// next call and count as consumed. The end is reported as by Next. With a sink it waits for a call of it that is
// under way and for nothing else: nothing and no error says that the stream is empty and the sink has it again.
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
			owing := s.credit()
			s.mu.Unlock()
			if owing {
				s.lane.pipe.Flush(pipe.ByFlush)
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
		if s.sunk {
			s.pulled = false
			s.mu.Unlock()
			return nil, nil
		}
		if err := s.await(ctx); err != nil {
			return nil, err
		}
	}
}

// retryAfter is how long a stream's lane may be without a connection before a request that has no record yet is told.
const retryAfter = 500 * time.Millisecond

// ErrLinkDown is what Wait returns when the stream's lane has been without a connection for so long that a request
// that has no record yet is better sent elsewhere.
var ErrLinkDown = errors.New("mux: the link to the worker is down")

// Wait waits until a record is ready or the stream has ended, whichever way; it takes nothing. It fails with
// ErrLinkDown or ctx's error.
func (s *InStream) Wait(ctx context.Context) error { return s.waitReady(ctx, false) }

// WaitOn is Wait for a request that nobody else can take: it waits on while the link is down, and ends with the stream.
func (s *InStream) WaitOn(ctx context.Context) error { return s.waitReady(ctx, true) }

func (s *InStream) waitReady(ctx context.Context, evenDown bool) error {
	for {
		s.mu.Lock()
		if s.readyN > 0 || s.end != nil {
			s.mu.Unlock()
			return nil
		}
		if !evenDown && s.records == 0 && s.lane.downFor() >= retryAfter {
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

// watch has the end of ctx wake the stream's consumer. It is set once for a context, so that a wait is a receive from
// one channel: a select costs a third of all that pulling costs. The lock is held.
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

// maxViews is for how many records a stream keeps the room to hand them over. A window of empty ones has more, and
// their views are three times the window.
const maxViews = 1024

// take hands over what is ready: the two buffers change places. The lock is held.
func (s *InStream) take() [][]byte {
	s.keep()
	s.ready, s.taken = s.taken[:0], s.ready
	switch {
	case cap(s.ready) > s.link.cfg.ShrinkThreshold:
		s.ready = nil // not the room inside the stream: taken may be there
	case cap(s.ready) == 0:
		s.ready = make([]byte, 0, inlineBuffer)
	}
	if cap(s.views) > maxViews {
		s.views = nil
	}
	s.views = view(slices.Grow(s.views[:0], int(s.readyN)), s.taken)
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

// credit owes CONSUMED, at half a window, and says whether the lane must be flushed. The lock is held.
func (s *InStream) credit() bool {
	consumed := s.received - s.unread
	if s.state != inLive || consumed-s.reported < uint64(s.window/2) {
		return false
	}
	s.reported = consumed
	at := pipe.Bulk
	if s.fast() {
		at = pipe.Urgent
	}
	s.tell(wantConsumed, at)
	return true
}

// fast says whether, at the stream's pace until now, the worker could use up the other half of the window while
// CONSUMED waits for the gap. Tokens never are: that would be more than 4 MiB/s of one response, with the default
// window and gap. The lock is held.
func (s *InStream) fast() bool {
	half := float64(s.window / 2)
	return float64(s.lastData-s.firstData)*half < 4*float64(s.link.node.cfg.GapMax)*float64(s.received)
}
