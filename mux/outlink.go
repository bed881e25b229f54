package mux

import (
	"fmt"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/accept"
	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// slotPage is how many slots a page of a table has.
const slotPage = 256

// outEntry is what a worker keeps of one index, whatever a peer sends: the number of its last use, and two bits.
type outEntry uint64

const (
	stopBit outEntry = 1 << iota // STOP came for the number after the last
	owedBit                      // END(killed) for the last is not sealed
)

func (e *outEntry) last() uint64             { return uint64(*e >> 2) }
func (e *outEntry) owed() bool               { return *e&owedBit != 0 }
func (e *outEntry) set(n uint64, b outEntry) { *e = outEntry(n<<2) | b }

// outPage is a page of the table; streams are there once a request with a key that holds was.
type outPage struct {
	entries [slotPage]outEntry
	streams *[slotPage]*OutStream
}

// outLink is a WorkerNode's side of a link: its slots and lanes.
type outLink struct {
	*node
	worker *WorkerNode
	link   *accept.Link
	lanes  []*outLane

	mu     sync.Mutex
	pages  []*outPage
	key    *wire.Key
	gone   bool
	claims map[[16]byte]chan grant // that were not answered
}

// Lane implements accept.Streams.
func (k *outLink) Lane(i int) pipe.Handler {
	n := &outLane{link: k, index: i}
	n.owed.Owner = n
	k.lanes = append(k.lanes, n)
	return n
}

// Open implements accept.Streams.
func (k *outLink) Open() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.lanes {
		n += l.live
	}
	return n
}

// unsettled is how many streams are open, and on how many lanes without one something is not acknowledged. Nobody waits
// for a lane that is lost: it may never come back.
func (k *outLink) unsettled() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, l := range k.lanes {
		switch {
		case l.lost && !k.link.Lanes()[i].Up():
		case l.live > 0:
			n += l.live
		case !l.pipe.Settled():
			n++
		}
	}
	return n
}

// within says whether the link has a slot.
func (k *outLink) within(kind wire.Kind, s wire.Slot) error {
	if int(s.Index()) > k.cfg.MaxStreams {
		return &wire.Error{Kind: kind, Slot: s,
			Reason: fmt.Sprintf("is beyond the %d slots that HELLO offered", k.cfg.MaxStreams)}
	}
	return nil
}

// entry is what is kept of an index that the link has. The lock is held.
func (k *outLink) entry(s wire.Slot) *outEntry {
	i := int(s.Index())
	for len(k.pages) <= i/slotPage {
		k.pages = append(k.pages, nil)
	}
	p := k.pages[i/slotPage]
	if p == nil {
		p = new(outPage)
		k.pages[i/slotPage] = p
	}
	return &p.entries[i%slotPage]
}

// at is the stream of an index that is open, or whose END is not sealed; nil if there is none. The lock is held.
func (k *outLink) at(index uint32) *OutStream {
	page := int(index / slotPage)
	if page >= len(k.pages) || k.pages[page] == nil || k.pages[page].streams == nil {
		return nil
	}
	return k.pages[page].streams[index%slotPage]
}

func (k *outLink) put(index uint32, s *OutStream) {
	p := k.pages[index/slotPage]
	if p.streams == nil {
		p.streams = new([slotPage]*OutStream)
	}
	p.streams[index%slotPage] = s
}

// lastNumber is the number of the slot's last use.
func (k *outLink) lastNumber(s wire.Slot) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.entry(s).last()
}

// attach opens the stream that terms name.
func (k *outLink) attach(t *wire.Terms, encoded []byte) (*OutStream, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return nil, fmt.Errorf("%w: link %d is gone", ErrStaleTerms, t.Link)
	}
	if err := k.worker.takes(); err != nil { // under the lock: Drain looks here once it has said so
		return nil, err
	}
	if !k.key.Holds(encoded) { // before anything of the terms changes anything
		return nil, fmt.Errorf("%w: their key is not this link's", ErrStaleTerms)
	}
	if int(t.Lane) >= len(k.lanes) {
		return nil, fmt.Errorf("%w: they name lane %d of %d", ErrStaleTerms, t.Lane, len(k.lanes))
	}
	if err := k.within(wire.Open, t.Slot); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrStaleTerms, err)
	}
	e := k.entry(t.Slot)
	if open := k.at(t.Slot.Index()) != nil || e.owed(); open || t.Number <= e.last() {
		return nil,
			fmt.Errorf("%w: number %d of slot %d, which is at %d: they came twice, late, or were cancelled before",
				ErrStaleTerms, t.Number, t.Slot.Index(), e.last())
	}
	if !k.budget.Take(int64(t.Window)) {
		return nil, fmt.Errorf("%w: the windows of open streams and the logs of lanes fill the bound of %d bytes",
			ErrBusy, k.budget.Limit())
	}
	n := k.lanes[t.Lane]
	s := &OutStream{pipe: n.pipe, lane: n, slot: t.Slot, number: t.Number, key: t.Key, window: t.Window,
		maxData: int32(wire.MaxRecord(int(t.Window))), charged: true}
	s.owed.Owner = s
	if t.TimeLeft > 0 && t.TimeLeft < forever {
		s.deadline = time.Now().Add(t.TimeLeft)
	}
	s.stopped.Store(*e&stopBit != 0 && e.last() == t.Number-1)
	e.set(t.Number, 0)
	k.put(t.Slot.Index(), s)
	n.live++
	n.lost = false
	k.link.Lanes()[t.Lane].Touch()
	k.stats.opened.Add(1)
	return s, nil
}

// sealed forgets the stream of a slot, or that an END is owed for it.
func (k *outLink) sealed(slot wire.Slot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.at(slot.Index()); s != nil && s.slot == slot {
		k.put(slot.Index(), nil)
		s.lane.live--
		k.uncommitLocked(s)
	} else if !k.gone {
		*k.entry(slot) &^= owedBit
	}
}

// uncommit gives a stream's window back.
func (k *outLink) uncommit(s *OutStream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uncommitLocked(s)
}

func (k *outLink) uncommitLocked(s *OutStream) {
	if s.charged {
		s.charged = false
		k.budget.Give(int64(s.window))
	}
}

// each calls fn for every stream, with its lane's lock held. The lock is held.
func (k *outLink) each(fn func(*OutStream)) {
	for _, p := range k.pages {
		if p == nil || p.streams == nil {
			continue
		}
		for _, s := range p.streams {
			if s != nil {
				s.pipe.Lock()
				fn(s)
				s.pipe.Unlock()
			}
		}
	}
}

// LaneLost implements accept.Streams: the lane's hold is over. The writers of its streams are told and what was
// committed for them is free; their ENDs go out if the lane ever has a connection again.
func (k *outLink) LaneLost(i int, why string) {
	var fx effects
	k.mu.Lock()
	n := k.lanes[i]
	n.lost = true
	k.each(func(s *OutStream) {
		if s.lane == n {
			s.giveUp(End{Type: EndLost, Text: why}, EndLost, &fx)
			k.uncommitLocked(s)
		}
	})
	n.pipe.Lock()
	n.pipe.SkipNow() // nothing bounds it any more
	n.pipe.Unlock()
	k.mu.Unlock()
	fx.run()
}

// Lost implements accept.Streams: the link has ended.
func (k *outLink) Lost(why string, protocol bool) {
	end := End{Type: EndLost, Text: why}
	if protocol {
		end.Type = EndProtocol
	}
	k.worker.forget(k)
	var fx effects
	k.mu.Lock()
	k.gone = true
	k.each(func(s *OutStream) {
		s.cut(end, &fx)
		s.ended = true
		s.dropLater()
		k.uncommitLocked(s)
	})
	k.pages = nil
	for _, l := range k.lanes {
		l.live = 0
	}
	claims := k.claims
	k.claims = nil
	k.mu.Unlock()
	for _, c := range claims {
		close(c)
	}
	fx.run()
}

// expire ends the open streams that are past their deadline; the frontend's KILL is the authority, this is the
// backstop.
func (k *outLink) expire(now time.Time) {
	var fx effects
	var late []*outLane
	k.mu.Lock()
	k.each(func(s *OutStream) {
		if s.deadline.IsZero() || now.Before(s.deadline) {
			return
		}
		end := End{Type: EndDeadline, Text: "the request's deadline has passed at the worker"}
		if s.cut(end, &fx) {
			s.putEnd(end)
			late = append(late, s.lane)
		}
	})
	k.mu.Unlock()
	fx.run()
	for _, n := range late {
		n.pipe.Flush(pipe.ByTick)
	}
}
