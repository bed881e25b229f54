package mux

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

const (
	// urgentFirst is the longest first DATA that goes out as urgent, with its OPEN.
	urgentFirst = 4 << 10
	// fairShare is how much of one stream may be unsent in its lane; what follows waits in the stream for its turn.
	fairShare = 16 << 10
)

// OutStream is one response at the worker. It stays on one lane for its life and knows nothing of connections: what is
// appended there arrives, once and in order, or the stream ends as lost.
//
// Its writing methods (Put, TryPut, Send, TrySend, Complete, Fail) may be called by one goroutine at a time; Flush,
// Err, Done, Stopping and OnWritable by any.
type OutStream struct {
	// The lane's lock guards what changes and is not atomic. A worker with a thousand streams finds none of it in its
	// caches when a pass comes to it, and fetching it is most of what a record costs. So what a record touches stands
	// first, in one line of memory (TestOutStreamIsCompact).
	end      atomic.Pointer[EndError] // set when the other side, or the plane, ended the stream
	pipe     *pipe.Pipe
	sent     uint64      // bytes of DATA and DATA_MORE, headers included, that were put
	consumed uint64      // of those, as the frontend has said
	stopped  atomic.Bool // the consumer has asked for it
	frames   uint32      // DATA and DATA_MORE that were put
	window   uint32
	maxData  int32 // the longest DATA, header included
	unsent   int32 // bytes of bulk that were appended in epoch
	epoch    uint32
	slot     wire.Slot
	begun    bool // OPEN is appended
	ended    bool // END is put
	starved  bool // ErrWindowFull was returned and no room told since
	behind   bool // later is not empty

	fragments  uint32 // DATA_MORE among frames
	charged    bool   // the window is committed; the link's lock guards it
	later      []byte // whole records beyond the stream's share, which owed appends
	laterAt    int    // where the first of them begins
	owed       pipe.Owed
	lane       *outLane
	number     uint64
	key        uint64
	deadline   time.Time // zero: none
	onWritable func()
	room       chan struct{} // capacity 1: for Put that waits
	done       chan struct{} // made by Done
}

// check says why nothing more may be written. The lock is held.
func (s *OutStream) check() error {
	if e := s.end.Load(); e != nil {
		return e
	}
	if s.ended {
		return ErrEnded
	}
	return nil
}

// records and bytes are how many whole records were put, and their payload. The lock is held.
func (s *OutStream) records() uint64 { return uint64(s.frames - s.fragments) }
func (s *OutStream) bytes() uint64   { return s.sent - wire.HeaderSize*uint64(s.frames) }

// fits says whether n more bytes fit the window. The lock is held.
func (s *OutStream) fits(n int) bool { return s.sent+uint64(n)-s.consumed <= uint64(s.window) }

// share is how many bytes of the stream are unsent in its lane. The lock is held.
func (s *OutStream) share() int32 {
	if e := s.pipe.Epoch(); e != s.epoch {
		s.epoch, s.unsent = e, 0
	}
	return s.unsent
}

// open appends OPEN. The lock is held.
func (s *OutStream) open(at pipe.Place) {
	s.begun = true
	b := s.pipe.Reserve(at, wire.Open, s.slot, wire.OpenSize)
	binary.BigEndian.PutUint64(b, s.number)
	binary.BigEndian.PutUint64(b[8:], s.key)
}

// data appends a DATA or DATA_MORE that fits the window. The lock is held.
func (s *OutStream) data(k wire.Kind, body []byte) {
	n := wire.HeaderSize + len(body)
	s.sent += uint64(n)
	if s.frames++; k == wire.DataMore {
		s.fragments++
	}
	if !s.begun {
		if k == wire.Data && len(body) <= urgentFirst {
			s.open(pipe.Urgent)
			s.pipe.Append(pipe.Urgent, k, s.slot, body)
			return
		}
		s.open(pipe.Bulk)
	}
	if s.behind || s.share() >= fairShare {
		s.keep(k, len(body))
		s.later = append(s.later, body...)
		return
	}
	s.unsent += int32(n)
	s.pipe.Append(pipe.Bulk, k, s.slot, body)
}

// keep begins a record that waits for its turn; its body follows. The lock is held.
func (s *OutStream) keep(k wire.Kind, n int) {
	s.behind = true
	s.later = wire.AppendHeader(s.later, k, n, s.slot)
	s.pipe.OweLocked(&s.owed, pipe.Bulk)
}

// Emit implements pipe.Emitter: the stream's turn, with its share or one longer record.
func (s *OutStream) Emit(p *pipe.Pipe) (more bool) {
	p.Lock()
	defer p.Unlock()
	for taken := 0; s.laterAt < len(s.later); {
		h := wire.ParseHeader(s.later[s.laterAt:])
		size := wire.HeaderSize + h.Length
		if taken > 0 && taken+size > fairShare {
			if s.laterAt > len(s.later)/2 { // it may never be empty while the stream goes on
				s.later, s.laterAt = append(s.later[:0], s.later[s.laterAt:]...), 0
			}
			return true
		}
		p.Append(pipe.Bulk, h.Kind, h.Slot, s.later[s.laterAt+wire.HeaderSize:s.laterAt+size])
		s.share()
		s.unsent += int32(size)
		s.laterAt += size
		taken += size
	}
	s.dropLater()
	return false
}

// dropLater forgets what waits for its turn. The lock is held.
func (s *OutStream) dropLater() { s.later, s.laterAt, s.behind = nil, 0, false }

// putEnd appends END. The lock is held.
func (s *OutStream) putEnd(end End) {
	s.ended = true
	body := wire.EndBody{Number: s.number, Type: end.Type, Retryable: end.Retryable, Code: end.Code,
		Records: s.records(), Bytes: s.bytes(), Text: end.Text, Trailer: end.Trailer}
	at := pipe.Bulk
	if !s.begun {
		at = pipe.Urgent
		s.open(at)
	}
	if s.behind {
		s.keep(wire.End, wire.EndSize(&body))
		s.later = wire.AppendEndBody(s.later, &body)
		return
	}
	s.pipe.AppendEnd(at, s.slot, &body)
}

// cut ends the stream for its engine, unless it has ended: it will not be written to any more. The lock is held.
func (s *OutStream) cut(end End, fx *effects) bool {
	if s.check() != nil {
		return false
	}
	end.Records, end.Bytes = s.records(), s.bytes()
	s.end.Store(&EndError{End: end})
	s.lane.link.stats.end(end.Type)
	if done := s.done; done != nil {
		fx.add(func() { close(done) })
	}
	s.wakeup(fx)
	return true
}

// giveUp is cut by what makes the rest of the stream of no use: what is unsent is skipped, and END says why. The lock
// is held.
func (s *OutStream) giveUp(end End, t EndType, fx *effects) {
	if s.ended && !s.behind {
		return // its END is in the string
	}
	s.cut(end, fx)
	s.dropLater()
	s.pipe.DisownLocked(&s.owed)
	if s.pipe.Unsent() > 0 {
		s.lane.skip(s.slot)
	}
	s.ended = true
	s.pipe.AppendEnd(pipe.Urgent, s.slot,
		&wire.EndBody{Number: s.number, Type: t, Text: end.Text, Records: s.records(), Bytes: s.bytes()})
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
