package mux

import (
	"fmt"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

const (
	// maxEarly bounds what a link remembers of requests that have not come yet, and earlyLife how long.
	maxEarly  = 4096
	earlyLife = 60 * time.Second
	slotPage  = 256
)

// outSlot is what a worker knows of one index: the number of its last use, and that use while anything is kept of it.
type outSlot struct {
	number uint64
	stream *OutStream
}

// outLink is a Sender's side of a link: its slots and lanes.
type outLink struct {
	*node
	sender     *Sender
	peer       transport.NodeID
	id         uint64
	ownSecret  [16]byte
	peerSecret [16]byte

	mu     sync.Mutex
	slots  [][]outSlot // in pages; an index beyond MaxStreams is malformed
	lanes  map[uint64]*lane
	live   int   // streams that are open or ended
	early  int   // entries that wait for their request
	idleAt int64 // node time since when no lane is up; 0 = one is
	gone   bool
}

// slot returns the entry of an index. The lock is held.
func (k *outLink) slot(kind wire.Kind, s wire.Slot) (*outSlot, error) {
	i := int(s.Index())
	if i > k.cfg.MaxStreams {
		return nil, &wire.Error{Kind: kind, Slot: s, Reason: fmt.Sprintf("is beyond the %d slots that HELLO offered", k.cfg.MaxStreams)}
	}
	page := i / slotPage
	for len(k.slots) <= page {
		k.slots = append(k.slots, nil)
	}
	if k.slots[page] == nil {
		k.slots[page] = make([]outSlot, slotPage)
	}
	return &k.slots[page][i%slotPage], nil
}

// attach opens the stream that terms name.
func (k *outLink) attach(t *wire.Terms) (*OutStream, error) {
	var fx effects
	k.mu.Lock()
	s, err := k.attachLocked(t, &fx)
	k.mu.Unlock()
	fx.run()
	return s, err
}

func (k *outLink) attachLocked(t *wire.Terms, fx *effects) (*OutStream, error) {
	if k.gone {
		return nil, fmt.Errorf("%w: link %d is gone", ErrStaleTerms, k.id)
	}
	slot, err := k.slot(wire.Open, t.Slot)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrStaleTerms, err)
	}
	if t.Number < slot.number {
		return nil, fmt.Errorf("%w: number %d of slot %d, which is at %d", ErrStaleTerms, t.Number, t.Slot.Index(), slot.number)
	}
	var early *OutStream
	if t.Number == slot.number {
		if early = slot.stream; early == nil || early.stateNow() != outEarly {
			return nil, fmt.Errorf("%w: number %d of slot %d came twice or was cancelled before", ErrStaleTerms, t.Number, t.Slot.Index())
		}
	}
	if !k.sender.commit(uint64(t.Window)) {
		return nil, fmt.Errorf("%w: the windows of open streams fill the replay bound of %d bytes", ErrBusy, k.cfg.MaxReplay)
	}
	k.free(slot, t.Number, fx)
	s := &OutStream{link: k, slot: t.Slot, number: t.Number, key: t.Key, window: t.Window, maxData: int32(wire.MaxRecord(int(t.Window))), state: outOpen}
	s.element.owner = s
	s.ring.pool = &k.chunks
	if t.TimeLeft > 0 {
		s.deadline = time.Now().Add(t.TimeLeft)
	}
	s.lane = k.lanes[t.Serial]
	if early != nil {
		early.mu.Lock()
		if early.lane != nil {
			s.lane, s.move = early.lane, early.move
		}
		s.stopped.Store(early.stopped.Load())
		early.close(End{}, fx)
		early.mu.Unlock()
	}
	if s.lane != nil {
		s.lane.opened()
	}
	if s.lane == nil || k.lanes[s.lane.serial] != s.lane { // an early entry's lane may have died since
		s.strandAt = k.now()
	}
	slot.number, slot.stream = t.Number, s
	k.live++
	k.stats.opened.Add(1)
	return s, nil
}

func (s *OutStream) stateNow() outState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// free ends what is left of an earlier use of the slot: a higher number says that the frontend is done with it. The link's
// lock is held.
func (k *outLink) free(slot *outSlot, number uint64, fx *effects) {
	old := slot.stream
	if old == nil || old.number >= number {
		return
	}
	slot.stream = nil
	old.mu.Lock()
	defer old.mu.Unlock()
	old.close(End{Type: EndLost, Text: "the frontend has given the slot to another stream"}, fx)
	if old.lane != nil { // an answer that nobody waits for any more
		old.lane.dequeue(&old.element, 0)
		old.answer, old.lane = nil, nil
	}
}

// laneDown takes a dead lane out of the link. Its streams stay and wait for their RESUME.
func (k *outLink) laneDown(l *lane) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lanes, l.serial)
	now := k.now()
	if len(k.lanes) == 0 {
		k.idleAt = now
	}
	k.each(func(_ *outSlot, s *OutStream) {
		switch {
		case s.lane != l:
		case s.state == outClosed:
			l.dequeue(&s.element, 0) // the frontend asks again on another lane
			s.answer, s.lane = nil, nil
		case s.strandAt == 0:
			s.strandAt = now
		}
	})
}

// each calls fn for what stands in the slots, with the stream's lock held. The link's lock is held.
func (k *outLink) each(fn func(slot *outSlot, s *OutStream)) {
	for _, page := range k.slots {
		for i := range page {
			if s := page[i].stream; s != nil {
				s.mu.Lock()
				fn(&page[i], s)
				s.mu.Unlock()
			}
		}
	}
}

// expire ends what has waited too long: streams whose lane has been dead for the hold time, entries whose request never
// came, streams past their deadline (the frontend's KILL is the authority, this is the backstop). It says whether the
// link is of no more use.
func (k *outLink) expire(now int64, late time.Duration, wall time.Time) (gone bool) {
	var fx effects
	k.mu.Lock()
	if k.idleAt != 0 {
		k.idleAt += int64(late)
	}
	k.each(func(slot *outSlot, s *OutStream) {
		if s.strandAt != 0 {
			s.strandAt += int64(late)
		}
		waited := time.Duration(0)
		if s.strandAt != 0 {
			waited = time.Duration(now - s.strandAt)
		}
		switch {
		case s.state == outClosed && s.answer == nil:
			slot.stream = nil // its END was written; the number stays
		case s.state == outEarly && waited >= earlyLife:
			slot.stream = nil
			s.close(End{}, &fx)
		case (s.state == outOpen || s.state == outEnded) && waited >= k.cfg.Hold:
			slot.stream = nil
			s.close(End{Type: EndLost, Text: fmt.Sprintf("no lane to the frontend for %v", k.cfg.Hold)}, &fx)
		case s.state == outOpen && !s.deadline.IsZero() && wall.After(s.deadline):
			s.expireDeadline(&fx)
		}
	})
	gone = len(k.lanes) == 0 && k.live == 0 && k.idleAt != 0 && time.Duration(now-k.idleAt) >= k.cfg.Hold
	k.gone = k.gone || gone
	k.mu.Unlock()
	fx.run()
	return gone
}

// expireDeadline ends an open stream whose request is past its deadline, with END so that the slot comes free. The lock is
// held.
func (s *OutStream) expireDeadline(fx *effects) {
	end := End{Type: EndDeadline, Text: "the request's deadline has passed at the worker"}
	s.appendEnd(end)
	end.Records, end.Bytes = s.records, s.bytes
	s.end.Store(&EndError{End: end})
	if done := s.done; done != nil {
		fx.add(func() { close(done) })
	}
	s.wakeup(fx)
	if l := s.lane; l != nil {
		fx.add(func() { l.flush(writeTick) })
	}
}

// loseAll ends every stream of the link: the frontend has said that it closes, or the Sender does. The link is gone.
func (k *outLink) loseAll(why string) {
	var fx effects
	k.mu.Lock()
	k.gone = true
	k.each(func(slot *outSlot, s *OutStream) {
		slot.stream = nil
		s.close(End{Type: EndLost, Text: why}, &fx)
	})
	lanes := k.lanes
	k.lanes = map[uint64]*lane{}
	k.mu.Unlock()
	fx.run()
	for _, l := range lanes {
		l.die(deathClosed, errLaneClosed)
	}
}
