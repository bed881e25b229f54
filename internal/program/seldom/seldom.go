// Package seldom bounds what others can make a process log. A peer, a client or a writer of the registry may cause an
// event as often as it likes; a Logger writes the first few lines of each kind and says with the next one how many were
// left out.
package seldom

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// Every is the time in which a kind of line has Burst lines.
	Every = 10 * time.Second
	// Burst is how many lines of a kind are written in that time.
	Burst = 10
	// maxKinds bounds what is remembered. Kinds past it share one count.
	maxKinds = 256
)

// Logger is log, bounded by the kind of line: its level and message, so messages must be constants and what varies must
// be in the attributes. Lines below Info are not bounded: who turns them on wants all. A nil log discards. One that is
// bounded already stays as it is.
func Logger(log *slog.Logger) *slog.Logger { return bounded(log, false) }

// One is Logger with all lines of a level as one kind, for messages that vary, such as those of http.Server.
func One(log *slog.Logger) *slog.Logger { return bounded(log, true) }

func bounded(log *slog.Logger, one bool) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	next := log.Handler()
	if h, ok := next.(*handler); ok {
		if h.one || !one {
			return log
		}
		next = h.next
	}
	return slog.New(&handler{next: next, one: one, limits: &limits{root: next, kinds: make(map[kind]*count)}})
}

// handler is a slog.Handler in front of next.
type handler struct {
	next slog.Handler
	one  bool
	*limits
}

// limits are shared by a logger and all that With makes of it.
type limits struct {
	root slog.Handler // without the attributes of one With

	mu    sync.Mutex
	kinds map[kind]*count
}

type kind struct {
	level   slog.Level
	message string
}

// count is what became of a kind's lines since began.
type count struct {
	began         time.Time
	written, left int
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{next: h.next.WithAttrs(attrs), one: h.one, limits: h.limits}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), one: h.one, limits: h.limits}
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.next.Handle(ctx, r)
	}
	k := kind{level: r.Level}
	if !h.one {
		k.message = r.Message
	}
	left, over, ok := h.admit(k, time.Now())
	if !ok {
		return nil
	}
	for _, o := range over {
		line := slog.NewRecord(r.Time, o.level, "lines were left out", 0)
		line.AddAttrs(slog.String("of", o.message), slog.Int("left_out", o.left))
		if err := h.root.Handle(ctx, line); err != nil {
			return err
		}
	}
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", left))
	}
	return h.next.Handle(ctx, r)
}

// leftOut is a kind whose time is over, and that had more lines than were written.
type leftOut struct {
	kind
	left int
}

// admit says whether a line may be written, how many of its kind were left out before it, and what was left out of
// kinds that have gone quiet.
func (l *limits) admit(k kind, now time.Time) (left int, over []leftOut, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.kinds[k]
	if c == nil && len(l.kinds) >= maxKinds {
		k.message = "" // all that there is no room for
		c = l.kinds[k]
	}
	if c != nil && now.Sub(c.began) < Every && c.written >= Burst {
		c.left++
		return 0, nil, false
	}
	// A line that is written is rare enough to look at all kinds: none is forgotten with its count, and none is kept
	// for nothing.
	for other, o := range l.kinds {
		if now.Sub(o.began) < Every {
			continue
		}
		switch {
		case other == k:
			left = o.left
		case o.left > 0:
			over = append(over, leftOut{other, o.left})
		}
		delete(l.kinds, other)
	}
	c = l.kinds[k]
	if c == nil {
		c = &count{began: now}
		l.kinds[k] = c
	}
	c.written++
	return left, over, true
}
