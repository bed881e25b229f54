package responseplane

import "time"

// tries are the attempts of one request that failed before its first record.
type tries []try

type try struct {
	w   *workerEntry
	why reason
	// held is the response of an attempt that its worker refused because it does not know the link. Its stream ends
	// when the link is lost.
	held *Response
}

// close gives back what is held.
func (h tries) close() {
	for _, t := range h {
		if t.held != nil {
			_ = t.held.Close()
		}
	}
}

// forget drops what speaks against the link to a node: there is another one.
func (h *tries) forget(f *Frontend, node NodeID) {
	var keep tries
	for _, t := range *h {
		switch {
		case t.w.node != node || !f.ofLink(t.why):
			keep = append(keep, t)
		case t.held != nil:
			_ = t.held.Close()
		}
	}
	*h = keep
}

// heldAt is the response that waits for the end of the link to a node, nil when none does. Those of links before that
// one have ended.
func (h tries) heldAt(node NodeID) *Response {
	for _, t := range h {
		if t.w.node == node && t.held != nil && t.held.in.End() == nil {
			return t.held
		}
	}
	return nil
}

// ofLink says whether an attempt failed because of the link alone, so that nobody has run it: it is worth another
// attempt, there too, as soon as there is another link. One that is dialled on demand was waited for already.
func (f *Frontend) ofLink(r reason) bool {
	return r == reasonStale || r == reasonNoLink && f.cfg.Dial != DialOnDemand
}

// stands says whether a link that failed an attempt is still the one that is there.
func (f *Frontend) stands(t try) bool {
	if t.held != nil {
		return t.held.in.End() == nil
	}
	return !f.recv.Up(t.w.node)
}

// rank is how far down the list of choices a worker stands.
type rank int

const (
	rankGood       rank = iota // nothing speaks against it
	rankBusyNode               // another worker of its process was full
	rankAvoided                // it or its process has just failed a request
	rankVanished               // its record has gone
	rankFailedNode             // another worker of its process failed this request, and a dead process fails all
	rankTried                  // it failed this request
	rankNone                   // it is not to be asked
)

// rank is where a worker stands for a request, whether it can be reached or not.
func (f *Frontend) rank(w *workerEntry, h tries, now time.Time) rank {
	at := rankGood
	switch {
	case w.gone.Load():
		return rankNone
	case w.vanished.Load() != 0:
		if !f.usable(w, now) {
			return rankNone
		}
		at = rankVanished
	case w.avoided(now):
		at = rankAvoided
	}
	for _, t := range h {
		switch {
		case t.w.node != w.node:
		case f.ofLink(t.why):
			if f.stands(t) {
				return rankNone
			}
		case t.w.workerCounts == w.workerCounts:
			at = max(at, rankTried)
		case t.why == reasonBusy:
			at = max(at, rankBusyNode)
		default:
			at = max(at, rankFailedNode)
		}
	}
	return at
}
