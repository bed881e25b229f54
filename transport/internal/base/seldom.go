package base

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// seldomEvery is the least time between two lines of one Seldom.
const seldomEvery = 10 * time.Second

// Seldom logs an event that a peer can cause as often as it likes: at most one line in ten seconds, with the number of
// those that were left out.
type Seldom struct {
	Log *slog.Logger

	mu   sync.Mutex
	last time.Time
	left int
}

// Warn logs or counts.
func (s *Seldom) Warn(msg string, args ...any) {
	now := time.Now()
	s.mu.Lock()
	if !s.last.IsZero() && now.Sub(s.last) < seldomEvery {
		s.left++
		s.mu.Unlock()
		return
	}
	left := s.left
	s.last, s.left = now, 0
	s.mu.Unlock()
	if left > 0 {
		args = append(args, "left_out", left)
	}
	s.Log.Log(context.Background(), slog.LevelWarn, msg, args...)
}

// Logger is log, or one that drops everything if log is nil.
func Logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
