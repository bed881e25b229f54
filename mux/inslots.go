package mux

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
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

// MintOptions are the time bounds of a stream; zero or less means none. The FrontendNode's ticker watches them, so they
// are exact to a quarter of a second.
type MintOptions struct {
	TimeLeft    time.Duration // until the whole stream must have ended; it travels in the terms
	FirstRecord time.Duration // until the first record must be here
	Inactivity  time.Duration // between two records
}

// mint takes a slot on a lane for a new stream.
func (k *inLink) mint(o MintOptions) (*InStream, error) {
	if err := k.link.Takes(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.leastToCome()
	if k.gone || n == nil {
		return nil, fmt.Errorf("%w: to node %s: no lane has a connection", ErrNoLink, k.link.Peer())
	}
	window, err := k.recv.commit()
	if err != nil {
		return nil, err
	}
	index, ok := k.takeIndex()
	if !ok {
		k.budget.Give(int64(window))
		return nil, fmt.Errorf("%w: all %d slots of the link to node %s are taken",
			ErrBusy, k.link.MaxStreams(), k.link.Peer())
	}
	k.gens[index]++
	k.number++
	k.live++
	s := &InStream{link: k, slot: wire.MakeSlot(index, k.gens[index]), number: k.number, window: uint32(window),
		lane:    n,
		charged: true}
	s.owed.Owner = s
	now := k.now()
	s.minted = now
	s.endBy, s.firstBy, s.inactivity = after(now, o.TimeLeft), after(now, o.FirstRecord), max(int64(o.Inactivity), 0)
	s.ready = s.room[:0]
	t := wire.Terms{Frontend: [16]byte(k.cfg.ID), Worker: [16]byte(k.link.Peer()), Link: k.link.Number(), Slot: s.slot,
		Number: s.number, Lane: uint16(n.index), Window: s.window, TimeLeft: o.TimeLeft}
	s.terms = wire.AppendTerms(make([]byte, 0, wire.TermsSize), &t, k.key)
	s.key = t.Key
	k.set(index, s)
	n.open.Add(1)
	k.stats.opened.Add(1)
	return s, nil
}

// placementSlack is by which part of the fewest open streams, and one, a lane may be above it and still get the next
// one.
const placementSlack = 8

// leastToCome is the lane for the next stream, nil if none has a connection: of those with the fewest open streams,
// or hardly more, the one that has carried the fewest bytes, with what its open streams will bring if they are like
// those before. Lengths of streams are heavy-tailed, so equal numbers of streams alone leave the lanes up to 1.6
// times as busy as the mean. The lock is held.
func (k *inLink) leastToCome() *inLane {
	fewest, carried := int64(math.MaxInt64), uint64(0)
	for i, l := range k.link.Lanes() {
		if l.Up() {
			fewest = min(fewest, k.lanes[i].open.Load())
			carried += l.Pipe().BytesIn.Load()
		}
	}
	most := fewest
	if fewest > 0 { // nobody shares a lane while another one is empty
		most += 1 + fewest/placementSlack
	}
	each := carried / max(k.number, 1) // what a stream brings
	var best *inLane
	var least uint64
	var bestOpen int64
	for i, l := range k.link.Lanes() {
		open := k.lanes[i].open.Load()
		if !l.Up() || open > most {
			continue
		}
		load := l.Pipe().BytesIn.Load() + uint64(open)*each
		if best == nil || load < least || load == least && open < bestOpen {
			best, least, bestOpen = k.lanes[i], load, open
		}
	}
	return best
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
	if int(k.top) >= k.link.MaxStreams() {
		return 0, false
	}
	k.top++
	for len(k.gens) <= int(k.top) {
		k.gens = append(k.gens, 0)
	}
	return k.top, true
}

// release gives a slot back: its END was read. The stream's lock is not held.
func (k *inLink) release(s *InStream) {
	s.lane.open.Add(-1)
	s.lane.pipe.Disown(&s.owed)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return // Lost has cleared the table
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
