package mux

import (
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
)

// A CONSUMED(end) that dies with its lane, written or not, would leave the ended stream with its bytes and its window at the worker for the
// whole hold time; so would a KILL that crossed with an END. So a frontend's lane remembers the streams whose END it has read
// until a PONG shows that the worker has read on, and when the lane dies the link says it again on another one: by KILL, which counts
// on any lane, names the stream and ends what is left of it. The END that answers finds its slot free, or another's, and is dropped.

// owedEnd is a stream whose END was read.
type owedEnd struct {
	slot   wire.Slot
	number uint64
	at     int64 // node time of the END, or of the write with the KILL
}

const (
	// maxOwed bounds what a lane, and a link without a lane, remember: the newest that many. What is forgotten is left to the
	// worker's hold time.
	maxOwed = 16384
	// owedMargin is how much older than a PING an END must be to be settled by its PONG: CONSUMED(end) waits up to lazyAfter, and
	// for the lane.
	owedMargin = int64(time.Second)
)

// owed is what a frontend's lane owes of streams that have ended. The lane's lock guards it.
type owed struct {
	element
	ends []owedEnd // what is owed is queued or written, oldest first
	due  []owedEnd // of other lanes, to be killed here
	said []owedEnd // killed here: at is when; a PING was asked for, so that a link whose lanes keep dying says it once
}

// keepNewest drops the oldest when there are too many.
func keepNewest(ends []owedEnd) []owedEnd {
	if len(ends) < maxOwed {
		return ends
	}
	return append(ends[:0], ends[len(ends)-maxOwed/2:]...)
}

// note remembers an end. The lane's lock is held.
func (o *owed) note(e owedEnd) { o.ends = append(keepNewest(o.ends), e) }

// noteEnd remembers the end of a stream that was killed before.
func (l *lane) noteEnd(s *InStream) {
	l.mu.Lock()
	l.owed.note(l.owedOf(s))
	l.mu.Unlock()
}

func (l *lane) owedOf(s *InStream) owedEnd { return owedEnd{s.slot, s.number, l.lastRecv.Load()} }

// settle takes the PONG of the PING of node time ping.
func (l *lane) settle(ping int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &l.owed
	o.said = slices.DeleteFunc(o.said, func(e owedEnd) bool { return e.at < ping })
	n := 0
	for n < len(o.ends) && o.ends[n].at < ping-owedMargin {
		n++
	}
	switch {
	case n < len(o.ends):
		o.ends = append(o.ends[:0], o.ends[n:]...)
	case cap(o.ends) > 1024: // of a burst
		o.ends = nil
	default:
		o.ends = o.ends[:0]
	}
}

// takeOwed empties a dead lane.
func (l *lane) takeOwed() (ends []owedEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends = slices.Concat(l.owed.said, l.owed.due, l.owed.ends)
	l.owed.said, l.owed.due, l.owed.ends = nil, nil, nil
	return ends
}

// owe has a lane that is up say what a dead one may have failed to say; nil: there is none yet. The link's lock is held, and the lane must be
// flushed then.
func (k *inLink) owe(l *lane, ends []owedEnd) {
	if len(ends) == 0 {
		return
	}
	if l == nil {
		k.owed = append(k.owed, ends...)
		k.owed = k.owed[max(0, len(k.owed)-maxOwed):]
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed.due = append(l.owed.due, ends...)
	l.owed.due = l.owed.due[max(0, len(l.owed.due)-maxOwed):]
	l.place(&l.owed.element, false)
}

// killSize is how long a KILL is.
const killSize = wire.HeaderSize + 9

// emit implements outgoing.
func (o *owed) emit(l *lane, b []byte, room int) ([]byte, int, int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(o.due), max(1, room/killSize))
	now := l.node.now()
	for _, e := range o.due[:n] {
		e.at = now
		b = wire.AppendKill(b, e.slot, e.number, EndKilled)
		o.said = append(keepNewest(o.said), e)
	}
	if o.due = o.due[n:]; len(o.due) == 0 {
		o.due = nil
		l.ping, l.flushed = true, true // of the next write; its PONG comes after these KILLs were read
		return b, 0, 0, false
	}
	l.place(&o.element, false)
	l.flushed = true // the next write goes on
	return b, 0, 0, false
}
