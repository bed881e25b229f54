package frontend

import (
	"sync/atomic"
	"time"
)

// stall resets a stream of HTTP/2 whose client leaves a write waiting. A deadline would do it as well, but on HTTP/2 a
// deadline that passes ends a stream that is merely silent too, and to set and clear one for each event costs two more
// trips to the connection's goroutine. So one timer a stream looks from time to time whether a write has waited for too
// long.
type stall struct {
	limit time.Duration
	reset func()
	timer *time.Timer
	epoch time.Time
	since atomic.Int64 // when the write that is under way began, since epoch; 0 = none is
	fired atomic.Bool
	state atomic.Int32 // watching, resetting, over
	done  chan struct{}
}

const (
	watching = iota
	resetting
	over
)

// watchStall begins to watch; stop must be called. reset may wait and is called at most once, from another goroutine,
// before stop returns.
func watchStall(limit time.Duration, reset func()) *stall {
	s := &stall{limit: limit, reset: reset, epoch: time.Now(), done: make(chan struct{})}
	s.timer = time.AfterFunc(time.Hour, s.look)
	s.timer.Reset(s.pause()) // now that look finds the timer
	return s
}

// pause is the time between two looks.
func (s *stall) pause() time.Duration { return max(s.limit/4, time.Millisecond) }

func (s *stall) look() {
	since := s.since.Load()
	if since == 0 || time.Since(s.epoch)-time.Duration(since) < s.limit {
		if s.state.Load() == watching {
			s.timer.Reset(s.pause())
		}
		return
	}
	if !s.state.CompareAndSwap(watching, resetting) {
		return
	}
	s.fired.Store(true)
	s.reset()
	close(s.done)
}

// begin and end stand around each write.
func (s *stall) begin(now time.Time) { s.since.Store(max(int64(now.Sub(s.epoch)), 1)) }
func (s *stall) end()                { s.since.Store(0) }

// stop ends the watch. It waits for a reset that is under way.
func (s *stall) stop() {
	if !s.state.CompareAndSwap(watching, over) {
		<-s.done
	}
	s.timer.Stop()
}
