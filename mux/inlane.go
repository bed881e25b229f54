package mux

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/laneway-ai/laneway/internal/wire"
)

// maxStray bounds the KILLs that answer OPENs of free slots between two writes; more are dropped, the worker's own timers
// end those streams.
const maxStray = 1024

// inLane is what a Receiver's lane reader works with.
type inLane struct {
	*lane
	link    *inLink
	touched []touched // got something in this read
	pass    Pass      // of this read
	warmed  uint64    // what warm has read: what is kept is not left out by the compiler
	stray   strayKills
	grants  grants
}

// touched is a stream that got something in a read, and its sinks as they were then.
type touched struct {
	s        *InStream
	sink     Sink
	passSink PassSink
}

// record implements recordHandler: what a worker sends.
func (n *inLane) record(l *lane, h wire.Header, body []byte) error {
	if h.Kind == wire.Claim {
		id, err := wire.ParseClaim(body)
		if err == nil {
			n.grants.answer(l, id)
		}
		return err
	}
	s := n.link.at(h.Slot.Index())
	if s == nil || s.slot != h.Slot {
		return n.unknown(h, body)
	}
	s.mu.Lock()
	if s.lane != l || s.state == inFree {
		s.mu.Unlock()
		l.node.stats.drops.add(dropStale)
		return nil
	}
	var err error
	free, before := false, s.state
	switch h.Kind {
	case wire.Open:
		var number, key uint64
		if number, key, err = wire.ParseOpen(h.Slot, body); err != nil {
			break
		}
		mine := false
		if mine, err = s.open(number, key); !mine {
			s.mu.Unlock()
			l.node.stats.drops.add(dropKey)
			n.stray.kill(l, h.Slot, number)
			return nil
		}
		if before == inMinted {
			s.heads.note(h, l.lastRecv.Load()-s.minted)
		}
	case wire.End:
		free, err = s.ended(l, body)
	default: // DATA, DATA_MORE
		switch s.state {
		case inLive:
			err = s.data(l, h, body)
		case inMinted:
			l.node.stats.drops.add(dropEarly)
		default:
			l.node.stats.drops.add(dropClosing)
		}
	}
	if err == nil && !s.touched {
		s.touched = true
		n.touched = append(n.touched, touched{s, s.sink, s.passSink})
	}
	killed := before == inLive && s.state == inClosing // there was no room for it
	s.mu.Unlock()
	if free {
		n.link.release(s, l)
	}
	if killed {
		l.flush(writeUrgent)
	}
	return err
}

// unknown takes a record of a slot that is free or has another generation. An OPEN is answered by KILL, so that its stream
// ends; everything else is dropped.
func (n *inLane) unknown(h wire.Header, body []byte) error {
	n.lane.node.stats.drops.add(dropFree)
	if h.Kind == wire.Open {
		number, _, err := wire.ParseOpen(h.Slot, body)
		if err != nil {
			return err
		}
		n.stray.kill(n.lane, h.Slot, number)
	}
	return nil
}

// batchDone implements recordHandler: everything that the read has brought is delivered, one wake or sink call a stream;
// then what they have put off to the end of the pass, and an owed CONSUMED goes out if it has waited long enough.
func (n *inLane) batchDone(l *lane) {
	n.pass.begin(l.lastRecv.Load(), true)
	n.warmSinks()
	for i := range n.touched {
		n.touched[i].s.deliver(&n.pass)
		n.touched[i] = touched{}
	}
	n.touched = n.touched[:0]
	l.flushDue(n.pass.end(l.node))
}

// violated implements recordHandler: laneDown ends the lane's streams.
func (n *inLane) violated(*lane, error) {}

// goAway implements recordHandler: the worker takes no new streams.
func (n *inLane) goAway(*lane, wire.GoAwayCode, string) {
	n.link.mu.Lock()
	n.link.draining = true
	n.link.mu.Unlock()
}

// strayKills are KILLs for streams that this side does not know. The lane's lock guards the list.
type strayKills struct {
	element
	due []strayKill
}

type strayKill struct {
	slot   wire.Slot
	number uint64
}

func (k *strayKills) kill(l *lane, slot wire.Slot, number uint64) {
	l.mu.Lock()
	full := len(k.due) >= maxStray
	if !full {
		k.due = append(k.due, strayKill{slot, number})
		l.place(&k.element, true)
	}
	l.mu.Unlock()
	if full {
		l.node.stats.drops.add(dropOverrun)
		return
	}
	l.flush(writeUrgent)
}

// emit implements outgoing.
func (k *strayKills) emit(l *lane, b []byte, _ int) ([]byte, int, int, bool) {
	l.mu.Lock()
	due := k.due
	k.due = nil
	l.mu.Unlock()
	for _, d := range due {
		b = wire.AppendNumber(b, wire.Kill, d.slot, d.number)
	}
	return b, 0, 0, false
}

// randomKey makes the key that proves an OPEN.
func randomKey() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.BigEndian.Uint64(b[:])
}
