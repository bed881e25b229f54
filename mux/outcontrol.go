package mux

import (
	"fmt"

	"github.com/laneway-ai/laneway/internal/wire"
)

// record implements recordHandler: what a frontend sends.
func (k *outLink) record(l *lane, h wire.Header, body []byte) error {
	if h.Kind == wire.Grant {
		return k.sender.answered(body)
	}
	var fx effects
	k.mu.Lock()
	err := k.recordLocked(l, h, body, &fx)
	k.mu.Unlock()
	fx.run()
	return err
}

func (k *outLink) recordLocked(l *lane, h wire.Header, body []byte, fx *effects) error {
	slot, err := k.slot(h.Kind, h.Slot)
	if err != nil {
		return err
	}
	if h.Kind == wire.Consumed {
		offset, err := wire.ParseUint64(h, body)
		if err != nil {
			return err
		}
		return k.consumed(l, slot, h.Slot, offset, fx)
	}
	var r wire.ResumeBody
	var why EndType
	switch h.Kind {
	case wire.Resume:
		r, err = wire.ParseResume(h.Slot, body)
	case wire.Kill:
		r.Number, why, err = wire.ParseKill(h.Slot, body)
	default:
		r.Number, err = wire.ParseUint64(h, body)
	}
	if err != nil {
		return err
	}
	if r.Number < slot.number || r.Number == 0 {
		k.stats.drops.add(dropStale)
		return nil
	}
	k.free(slot, r.Number, fx)
	switch h.Kind {
	case wire.Kill:
		k.kill(l, slot, h.Slot, r.Number, why, fx)
	case wire.Stop:
		k.stop(slot, h.Slot, r.Number)
	default:
		return k.resume(l, slot, h.Slot, r, fx)
	}
	return nil
}

// consumed takes the frontend's one cumulative number.
func (k *outLink) consumed(l *lane, slot *outSlot, at wire.Slot, offset uint64, fx *effects) error {
	s := slot.stream
	if s == nil || s.slot != at {
		k.stats.drops.add(dropStale)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lane != l || s.state == outClosed || s.state == outEarly {
		k.stats.drops.add(dropStale)
		return nil
	}
	if offset < s.ring.base || offset > s.cursor {
		return &wire.Error{Kind: wire.Consumed, Slot: at, Reason: fmt.Sprintf("says %d, known are %d consumed and %d sent", offset, s.ring.base, s.cursor)}
	}
	k.forget(s, slot, offset, fx)
	return nil
}

// forget drops what the frontend has consumed; all of an ended stream is its end. The locks of link and stream are held.
func (k *outLink) forget(s *OutStream, slot *outSlot, offset uint64, fx *effects) {
	s.ring.release(offset)
	if s.state == outEnded && offset == s.ring.tail {
		slot.stream = nil
		s.close(End{}, fx)
		return
	}
	s.wakeup(fx)
}

// carrier is a stream that only carries an answer, or what is remembered for a request that has not come.
func (k *outLink) carrier(slot *outSlot, at wire.Slot, number uint64, state outState) *OutStream {
	s := &OutStream{link: k, slot: at, number: number, state: state, strandAt: k.now()}
	s.element.owner = s
	s.ring.pool = &k.chunks
	slot.number, slot.stream = number, s
	if state == outEarly {
		k.early++
	}
	return s
}

// answerEnd owes the frontend an END on lane l, outside the stream's string. The stream is closed; its lock is held.
func (s *OutStream) answerEnd(l *lane, at wire.Slot, t wire.EndType, fx *effects) {
	if s.lane != nil {
		s.lane.dequeue(&s.element, 0)
	}
	s.lane, s.slot = l, at
	s.answer = &wire.EndBody{Number: s.number, Type: t, Records: s.records, Bytes: s.bytes}
	l.enqueue(&s.element, 0, true)
	fx.add(func() { l.flush(writeUrgent) })
}

// kill implements the KILL column of the state table. The slot's number is at most number.
func (k *outLink) kill(l *lane, slot *outSlot, at wire.Slot, number uint64, why EndType, fx *effects) {
	s := slot.stream
	if s == nil {
		s = k.carrier(slot, at, number, outClosed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	written := s.endSerial == l.serial
	text := "killed by the consumer"
	if why != EndKilled {
		text = "given up by the frontend: " + why.String()
	}
	s.close(End{Type: why, Text: text}, fx)
	if !written {
		s.answerEnd(l, at, EndKilled, fx)
	}
}

// stop implements the STOP column.
func (k *outLink) stop(slot *outSlot, at wire.Slot, number uint64) {
	s := slot.stream
	if number > slot.number {
		if k.early >= maxEarly {
			k.stats.drops.add(dropOverrun)
			return
		}
		s = k.carrier(slot, at, number, outEarly)
	}
	if s != nil {
		s.stopped.Store(true)
	}
}

// resume implements the RESUME column.
func (k *outLink) resume(l *lane, slot *outSlot, at wire.Slot, r wire.ResumeBody, fx *effects) error {
	s := slot.stream
	if r.Number > slot.number && r.Received == 0 && k.early < maxEarly {
		s = k.carrier(slot, at, r.Number, outEarly)
	} else if s == nil {
		s = k.carrier(slot, at, r.Number, outClosed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == outClosed {
		s.answerEnd(l, at, EndLost, fx)
		return nil
	}
	if r.Move <= s.move {
		k.stats.drops.add(dropStale)
		return nil
	}
	if s.state != outEarly && (r.Consumed < s.ring.base || r.Received > s.sent()) {
		return &wire.Error{Kind: wire.Resume, Slot: at, Reason: fmt.Sprintf("says %d consumed and %d received, known are %d and %d sent", r.Consumed, r.Received, s.ring.base, s.sent())}
	}
	k.moveTo(s, l, r.Move, fx)
	if s.state == outEarly {
		s.strandAt = k.now() // it waits for its request, on a live lane too
		return nil
	}
	s.high, s.cursor = s.sent(), r.Received
	k.forget(s, slot, r.Consumed, fx)
	if s.state == outClosed || s.cursor == s.ring.tail {
		return nil
	}
	unsent := int(s.ring.tail - s.cursor)
	_, pending := s.whole(unsent)
	s.pending = int32(pending)
	l.enqueue(&s.element, unsent, s.cursor < s.urgentTo && !k.cfg.NoUrgent)
	fx.add(func() { l.flush(writeUrgent) })
	return nil
}

// moveTo takes a stream to another lane. A lane whose streams were moved is dead for the frontend, so it is closed here
// too. The locks of link and stream are held.
func (k *outLink) moveTo(s *OutStream, l *lane, move uint32, fx *effects) {
	if old := s.lane; old != nil {
		old.dequeue(&s.element, int(s.ring.tail-s.cursor))
		old.closed()
		if old != l && old.deadErr() == nil {
			fx.add(func() { old.die(deathMoved, errLaneClosed) })
		}
	}
	s.lane, s.move, s.strandAt = l, move, 0
	l.opened()
	k.stats.moved.Add(1)
}

// batchDone implements recordHandler; a worker has nothing to do after a read.
func (k *outLink) batchDone(*lane) {}

// goAway implements recordHandler. A frontend that drains mints no new terms; nothing is to be done here.
func (k *outLink) goAway(*lane, wire.GoAwayCode, string) {}
