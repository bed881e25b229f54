package mux

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/dial"
	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// inLink is a FrontendNode's side of a link: its slots and lanes. A link that has ended does not come back; the next
// one has a new number and an empty table.
type inLink struct {
	*node
	recv    *FrontendNode
	link    *dial.Link
	lanes   []*inLane
	closing atomic.Int64                 // slots that wait for the worker's END
	pages   atomic.Pointer[[]*slotArray] // copied when it grows

	mu       sync.Mutex
	key      *wire.Key
	free     []uint32 // indexes in the order in which they came free
	freeHead int
	top      uint32 // highest index ever used
	gens     []uint8
	number   uint64
	live     int // slots in use
	gone     bool
}

// Lane implements dial.Streams.
func (k *inLink) Lane(i int) pipe.Handler {
	n := &inLane{link: k, index: i}
	n.grants.of, n.grants.owed.Owner = n, &n.grants
	k.lanes = append(k.lanes, n)
	return n
}

// LaneUp implements dial.Streams. Streams know nothing of connections, but to mint one takes a lane that is up.
func (k *inLink) LaneUp(int) {
	for _, n := range k.lanes {
		n.grants.again()
	}
}

// Open implements dial.Streams.
func (k *inLink) Open() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.live
}

// LaneLost implements dial.Streams: the lane was without a connection for too long. Its streams end here; KILL is owed.
func (k *inLink) LaneLost(i int, why string) {
	k.endStreams(func(s *InStream) bool { return s.lane == k.lanes[i] }, End{Type: EndLost, Text: why})
}

// endStreams kills those that have no end yet.
func (k *inLink) endStreams(which func(*InStream) bool, end End) {
	var ended []*InStream
	k.mu.Lock()
	k.each(func(s *InStream) {
		if s.end == nil && which(s) {
			s.kill(end)
			ended = append(ended, s)
		}
	})
	k.mu.Unlock()
	k.flush()
	k.deliverEnds(ended)
}

func (k *inLink) flush() {
	for _, n := range k.lanes {
		n.pipe.Flush(pipe.ByUrgent)
	}
}

// Lost implements dial.Streams: every stream that has no end ends, and all slots are gone.
func (k *inLink) Lost(why string, protocol bool) {
	end := End{Type: EndLost, Text: why}
	if protocol {
		end.Type = EndProtocol
	}
	var ended []*InStream
	k.mu.Lock()
	k.gone = true
	k.each(func(s *InStream) {
		if s.state == inClosing {
			k.closing.Add(-1)
		}
		s.state = inFree
		s.lane.pipe.Disown(&s.owed)
		if s.end == nil {
			s.finish(end)
		}
		ended = append(ended, s) // also those that were killed: a sink waits for the END that comes no more
	})
	k.pages.Store(&[]*slotArray{})
	k.live = 0
	k.mu.Unlock()
	k.recv.forget(k)
	k.deliverEnds(ended)
}

// checkTimes ends the streams whose time is up, and has those who wait for a first record look whether their lane is
// down.
func (k *inLink) checkTimes(now int64, late time.Duration) {
	down := make([]bool, len(k.lanes))
	for i, n := range k.lanes {
		down[i] = n.downFor() >= retryAfter
	}
	var ended []*InStream
	k.mu.Lock()
	k.each(func(s *InStream) {
		if late > 0 { // this process was stopped: the worker was not silent
			s.firstBy, s.lastData = later(s.firstBy, late), later(s.lastData, late)
		}
		if s.overdue(now) {
			ended = append(ended, s)
		} else if s.records == 0 && down[s.lane.index] {
			s.rouse()
		}
	})
	k.mu.Unlock()
	if len(ended) > 0 {
		k.flush()
		k.deliverEnds(ended)
	}
}

// deliverEnds tells the consumers of streams that ended outside a read of their lane. No lock is held.
func (k *inLink) deliverEnds(ended []*InStream) {
	if len(ended) == 0 {
		return
	}
	pass := new(Pass)
	pass.begin(k.now(), false)
	for _, s := range ended {
		s.deliver(pass)
	}
	pass.end(k.node)
}
