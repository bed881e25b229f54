package mux

import (
	"fmt"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// outLane is one lane of an outLink: what its frontend sends, and the ENDs that answer KILLs of requests which have not
// come.
type outLane struct {
	link  *outLink
	index int
	pipe  *pipe.Pipe

	// The link's lock guards these.
	live int  // streams that are open, or whose END is not sealed
	lost bool // its streams were given up, and no other has come

	// The pipe's lock guards these.
	unwanted map[wire.Slot]struct{} // streams whose unsent records are skipped, until their END is sealed
	ends     []wire.Slot            // that owe an END(killed)
	owed     pipe.Owed

	fx    effects // of the record that is handled; the lane's reader owns these two
	flush bool    // the read has made something due
}

// Bind implements pipe.Binder. With the last lane's pipe the link is there for all.
func (n *outLane) Bind(p *pipe.Pipe) {
	n.pipe = p
	if n.index == len(n.link.link.Lanes())-1 {
		n.link.worker.see(n.link)
	}
}

// Record implements pipe.Handler.
func (n *outLane) Record(h wire.Header, body []byte) (err error) {
	k := n.link
	if h.Kind == wire.Grant {
		return k.granted(body)
	}
	if err := k.within(h.Kind, h.Slot); err != nil {
		return err
	}
	k.mu.Lock()
	switch h.Kind {
	case wire.Consumed:
		err = k.consumed(n, h.Slot, body)
	case wire.Stop:
		err = k.stop(n, h.Slot, body)
	default:
		err = k.kill(n, h.Slot, body)
	}
	k.mu.Unlock()
	n.fx.run()
	clear(n.fx)
	n.fx = n.fx[:0]
	return err
}

// BatchDone implements pipe.Handler: one write for all that the read has made due.
func (n *outLane) BatchDone() {
	if n.flush {
		n.flush = false
		n.pipe.Flush(pipe.ByUrgent)
	}
}

// Skips implements pipe.Handler.
func (n *outLane) Skips(s wire.Slot) bool {
	_, ok := n.unwanted[s]
	return ok
}

// skip has the unsent records of a stream skipped. The pipe's lock is held.
func (n *outLane) skip(s wire.Slot) {
	if n.unwanted == nil {
		n.unwanted = make(map[wire.Slot]struct{})
	}
	n.unwanted[s] = struct{}{}
	n.pipe.Skip()
}

// Sealed implements pipe.Handler: nothing of the stream is needed for sending again.
func (n *outLane) Sealed(s wire.Slot) {
	n.pipe.Lock()
	delete(n.unwanted, s)
	n.pipe.Unlock()
	n.link.sealed(s)
}

// answer owes END(killed) for a slot whose request has not come.
func (n *outLane) answer(s wire.Slot) {
	n.pipe.Lock()
	n.ends = append(n.ends, s) // each slot once: the next KILL of its index comes after this END
	n.pipe.OweLocked(&n.owed, pipe.Urgent)
	n.pipe.Unlock()
	n.flush = true
}

// endsPerTurn is how many ENDs are appended at a time: 16 KiB.
const endsPerTurn = 400

// Emit implements pipe.Emitter.
func (n *outLane) Emit(p *pipe.Pipe) (more bool) {
	p.Lock()
	turn := n.ends[:min(len(n.ends), endsPerTurn)]
	n.ends = n.ends[len(turn):]
	if more = len(n.ends) > 0; !more {
		n.ends = nil
	}
	p.Unlock()
	for _, s := range turn {
		e := wire.EndBody{Number: n.link.lastNumber(s), Type: EndKilled}
		p.Lock()
		p.AppendEnd(pipe.Urgent, s, &e)
		p.Unlock()
	}
	return more
}

// consumed takes what the application has consumed of a stream. The link's lock is held.
func (k *outLink) consumed(n *outLane, slot wire.Slot, body []byte) error {
	number, consumed, err := wire.ParseConsumed(slot, body)
	if err != nil {
		return err
	}
	s := k.streamOf(n, slot, number)
	if s == nil {
		return nil
	}
	s.pipe.Lock()
	defer s.pipe.Unlock()
	if consumed < s.consumed || consumed > s.sent {
		text := fmt.Sprintf("CONSUMED says %d bytes, known are %d consumed and %d sent", consumed, s.consumed, s.sent)
		s.giveUp(End{Type: EndProtocol, Text: text}, EndProtocol, &n.fx)
		n.flush = true
		return nil
	}
	s.consumed = consumed
	s.wakeup(&n.fx)
	return nil
}

// streamOf is the open stream that a record is for; nil is dropped and counted. The link's lock is held.
func (k *outLink) streamOf(n *outLane, slot wire.Slot, number uint64) *OutStream {
	s := k.at(slot.Index())
	if s == nil || s.slot != slot || s.number != number || s.lane != n {
		k.stats.drops.add(dropStale)
		return nil
	}
	return s
}

// stop implements the STOP column of the state table (docs/wire.md 6). The link's lock is held.
func (k *outLink) stop(n *outLane, slot wire.Slot, body []byte) error {
	number, err := wire.ParseStop(slot, body)
	if err != nil {
		return err
	}
	e, s := k.entry(slot), k.at(slot.Index())
	switch {
	case s != nil && s.number == number && s.lane == n:
		s.stopped.Store(true)
	case s == nil && !e.owed() && number > e.last() && number <= wire.MaxNumber:
		e.set(number-1, stopBit)
	default:
		k.stats.drops.add(dropStale)
	}
	return nil
}

// kill implements the KILL column. The link's lock is held.
func (k *outLink) kill(n *outLane, slot wire.Slot, body []byte) error {
	number, why, err := wire.ParseKill(slot, body)
	if err != nil {
		return err
	}
	e, s := k.entry(slot), k.at(slot.Index())
	switch {
	case number == 0 || number > wire.MaxNumber:
		return &wire.Error{Kind: wire.Kill, Slot: slot, Reason: fmt.Sprintf("names stream number %d", number)}
	case number > e.last() && (s != nil || e.owed()):
		return &wire.Error{Kind: wire.Kill, Slot: slot,
			Reason: fmt.Sprintf("names number %d while %d is not over", number, e.last())}
	case number > e.last():
		e.set(number, owedBit)
		n.answer(slot)
	case s != nil && s.number == number && s.lane == n:
		text := "killed by the consumer"
		if why != EndKilled {
			text = "given up by the frontend: " + why.String()
		}
		s.pipe.Lock()
		s.giveUp(End{Type: why, Text: text}, EndKilled, &n.fx)
		s.pipe.Unlock()
		n.flush = true
	default:
		k.stats.drops.add(dropStale) // its END is in the string
	}
	return nil
}
