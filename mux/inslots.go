package mux

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
)

// slotArray is one page of the slot table.
type slotArray [slotPage]atomic.Pointer[InStream]

// at finds the stream of an index, nil when the slot is free. It takes no lock.
func (k *inLink) at(index uint32) *InStream {
	pages := *k.pages.Load()
	if page := int(index / slotPage); page < len(pages) {
		return pages[page][index%slotPage].Load()
	}
	return nil
}

// set puts a stream into its slot. The lock is held.
func (k *inLink) set(index uint32, s *InStream) {
	pages := *k.pages.Load()
	if page := int(index / slotPage); page >= len(pages) {
		grown := append(append([]*slotArray(nil), pages...), new(slotArray))
		k.pages.Store(&grown)
		pages = grown
	}
	pages[index/slotPage][index%slotPage].Store(s)
}

// MintOptions are the time bounds of a stream; zero means none. The Receiver's ticker watches them, so they are exact to a
// quarter of a second.
type MintOptions struct {
	TimeLeft    time.Duration // until the whole stream must have ended; it travels in the terms
	FirstRecord time.Duration // until the first record must be here
	Inactivity  time.Duration // between two records
}

// mint takes a slot and a lane for a new stream.
func (k *inLink) mint(o MintOptions) (*InStream, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.gone || k.leaving || len(k.lanes) == 0:
		return nil, fmt.Errorf("%w: to node %s: no lane is up", ErrNoLink, k.peer.id)
	case k.draining:
		return nil, fmt.Errorf("%w: node %s", ErrDraining, k.peer.id)
	}
	window, err := k.recv.commit()
	if err != nil {
		return nil, err
	}
	index, ok := k.takeIndex()
	if !ok {
		k.recv.committed.Add(-int64(window))
		return nil, fmt.Errorf("%w: all %d slots of the link to node %s are taken", ErrBusy, k.maxStreams, k.peer.id)
	}
	k.gens[index]++
	k.number++
	k.live++
	l := k.emptiest()
	s := &InStream{link: k, slot: wire.MakeSlot(index, k.gens[index]), number: k.number, key: randomKey(), window: uint32(window), lane: l, charged: true}
	s.element.owner = s
	now := k.now()
	s.minted, s.stay = now, stayOn(l, now)
	if o.TimeLeft > 0 {
		s.endBy = now + int64(o.TimeLeft)
	}
	if o.FirstRecord > 0 {
		s.firstBy = now + int64(o.FirstRecord)
	}
	s.inactivity = int64(o.Inactivity)
	s.ready = s.room[:0]
	s.terms = wire.AppendTerms(make([]byte, 0, wire.TermsSize), &wire.Terms{
		Frontend: [16]byte(k.cfg.ID), Worker: [16]byte(k.peer.id), Link: k.id, Slot: s.slot, Number: s.number, Key: s.key,
		Serial: l.serial, Window: uint32(window), TimeLeft: o.TimeLeft,
	})
	k.set(index, s)
	l.opened()
	k.stats.opened.Add(1)
	return s, nil
}

// takeIndex takes the index that has been free for longest, or a new one. The lock is held.
func (k *inLink) takeIndex() (uint32, bool) {
	if k.freeHead < len(k.free) {
		i := k.free[k.freeHead]
		k.freeHead++
		if k.freeHead > 1024 && k.freeHead > len(k.free)/2 {
			k.free = append(k.free[:0], k.free[k.freeHead:]...)
			k.freeHead = 0
		}
		return i, true
	}
	if int(k.top) >= k.maxStreams {
		return 0, false
	}
	k.top++
	for len(k.gens) <= int(k.top) {
		k.gens = append(k.gens, 0)
	}
	return k.top, true
}

// release gives a slot back: its END was read. The stream's lock is not held.
func (k *inLink) release(s *InStream, l *lane) {
	l.closed()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return // lose has cleared the table
	}
	i := s.slot.Index()
	k.set(i, nil)
	k.free = append(k.free, i)
	k.live--
}

// each calls fn for every stream whose slot is taken, with the stream's lock held. The link's lock is held.
func (k *inLink) each(fn func(*InStream)) {
	for _, page := range *k.pages.Load() {
		for i := range page {
			s := page[i].Load()
			if s == nil {
				continue
			}
			s.mu.Lock()
			if s.state != inFree {
				fn(s)
			}
			s.mu.Unlock()
		}
	}
}
