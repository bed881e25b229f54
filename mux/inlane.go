package mux

import (
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/dial"
	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// inLane is one lane of an inLink: what its worker sends.
type inLane struct {
	link  *inLink
	index int
	pipe  *pipe.Pipe
	open  atomic.Int64 // streams whose slot is taken

	// Of the lane's reader.
	touched []touched // got something in this read
	warmed  uint64    // what Warm has read: what is kept is not left out by the compiler
	pass    Pass      // of this read
	now     int64     // node time of this read, 0 = not known yet
	flush   bool      // the read has made something due
	grants  grants
}

// touched is a stream that got something in a read, and its sinks as they were then.
type touched struct {
	s        *InStream
	sink     Sink
	passSink PassSink
}

// Bind implements pipe.Binder. With the last lane's pipe the link is there for all.
func (n *inLane) Bind(p *pipe.Pipe) {
	n.pipe = p
	if n.index == len(n.link.link.Lanes())-1 {
		n.link.recv.see(n.link)
	}
}

func (n *inLane) lane() *dial.Lane { return n.link.link.Lanes()[n.index] }

// downFor is how long the lane has been without a connection.
func (n *inLane) downFor() time.Duration {
	since := n.lane().DownSince()
	if since == 0 {
		return 0
	}
	return time.Duration(n.link.now() - since)
}

// Record implements pipe.Handler.
func (n *inLane) Record(h wire.Header, body []byte) error {
	if h.Kind == wire.Claim {
		return n.grants.answer(body)
	}
	s := n.link.at(h.Slot.Index())
	if s == nil || s.slot != h.Slot {
		n.link.stats.drops.add(dropFree)
		return nil
	}
	if n.now == 0 {
		n.now = n.pipe.Heard()
	}
	s.mu.Lock()
	if s.lane != n || s.state == inFree {
		s.mu.Unlock()
		n.link.stats.drops.add(dropStale)
		return nil
	}
	var err error
	free := false
	switch {
	case h.Kind == wire.Open:
		err = s.open(body, n.now)
	case h.Kind == wire.End:
		free, err = s.ended(body, n.now)
	case s.state == inLive:
		s.data(h, body, n.now)
	case s.state == inMinted:
		n.link.stats.drops.add(dropEarly)
	default:
		n.link.stats.drops.add(dropClosing)
	}
	if err == nil && !s.touched {
		s.touched = true
		n.touched = append(n.touched, touched{s, s.sink, s.passSink})
	}
	s.mu.Unlock()
	if free {
		n.link.release(s)
	}
	return err
}

// BatchDone implements pipe.Handler: everything that the read has brought is delivered, one wake or sink call a stream;
// then what they have put off to the end of the pass, and what the worker must hear.
func (n *inLane) BatchDone() {
	if len(n.touched) > 0 {
		n.pass.begin(n.now, true)
		n.warmSinks()
		for i := range n.touched {
			n.touched[i].s.deliver(&n.pass)
			n.touched[i] = touched{}
		}
		n.touched = n.touched[:0]
		n.pass.end(n.link.node)
	}
	n.now = 0
	if n.flush || n.pass.owing != nil {
		why := pipe.ByFlush
		if n.flush {
			why = pipe.ByUrgent
		}
		n.flush, n.pass.owing = false, nil
		n.pipe.Flush(why)
	}
}

// Sealed implements pipe.Handler; a frontend sends nothing of which it wants to know.
func (n *inLane) Sealed(wire.Slot) {}

// Skips implements pipe.Handler; what a frontend has to say stays true.
func (n *inLane) Skips(wire.Slot) bool { return false }
