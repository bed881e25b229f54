package dial

import (
	"context"
	"errors"
	"slices"
)

// addresses is what is known of where a node is: mostly one description, several when what names the node disagrees.
// One is in force. It stays in force while a link is up over it and somebody names it; a dial that fails has the next
// one tried.
type addresses struct {
	all    []Peer // as Add was told
	usable []Peer // those with a route, or the first one if none has; never empty
	at     int    // in usable: the one in force
}

func sameAddresses(a, b Peer) bool {
	return a.Network == b.Network && slices.EqualFunc(a.Planes, b.Planes, func(x, y PeerPlane) bool {
		return x.Plane == y.Plane && slices.Equal(x.Endpoints, y.Endpoints)
	})
}

func (a *addresses) index(desc Peer) int {
	return slices.IndexFunc(a.usable, func(o Peer) bool { return sameAddresses(o, desc) })
}

func (r *Peers) addressesOf(desc Peer) addresses {
	a := addresses{all: append([]Peer{desc}, desc.Alternatives...)}
	for _, d := range a.all {
		d.ID, d.Alternatives = desc.ID, nil
		if len(r.shared(d)) > 0 && a.index(d) < 0 {
			a.usable = append(a.usable, d)
		}
	}
	if len(a.usable) == 0 {
		a.usable = []Peer{desc}
	}
	return a
}

// errRenewed ends the wait of a dial whose node has been described anew: the next one begins at once.
var errRenewed = errors.New("mux: the node has other addresses now")

// update replaces what is known of the node. What an open link uses stays in force if it is still named; else the first
// one is next, and a dial to what nobody names any more is given up.
func (p *peer) update(desc Peer) {
	next := p.recv.addressesOf(desc)
	p.mu.Lock()
	was, former := p.known.usable[p.known.at], p.known.usable
	news := !slices.EqualFunc(former, next.usable, sameAddresses)
	if i := next.index(was); i >= 0 && (!news || p.link.Load() != nil) {
		next.at = i
	}
	p.known = next
	if news {
		p.renewed, p.soon = true, !p.recv.cfg.OnDemand
		p.slow.Store(false)
		if p.leave != nil {
			p.leave()
		}
		if p.dialling != nil && next.index(p.dialled) < 0 {
			p.dialling()
		}
	}
	p.mu.Unlock()
	signal(p.wanted)
}

// description is the one in force.
func (p *peer) description() Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known.usable[p.known.at]
}

// described is all that Add was told.
func (p *peer) described() []Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known.all
}

// attempt says what the next attempt dials; abandon ends it when nobody names that any more.
func (p *peer) attempt(abandon context.CancelFunc) Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renewed = false
	p.dialled, p.dialling = p.known.usable[p.known.at], abandon
	return p.dialled
}

// connected has what was dialled in force. False: nobody names it any more.
func (p *peer) connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialling = nil
	i := p.known.index(p.dialled)
	if i >= 0 {
		p.known.at = i
	}
	return i >= 0
}

// failed has the next description in force after what was dialled, and takes note of whether that was silent. It says
// how many there are, and whether they have changed since the attempt began.
func (p *peer) failed(silent bool) (n int, renewed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialling = nil
	n = len(p.known.usable)
	if sameAddresses(p.dialled, p.known.usable[p.known.at]) {
		p.known.at = (p.known.at + 1) % n
	}
	if !p.renewed {
		p.slow.Store(silent)
		p.soon = false
	}
	return n, p.renewed
}

// queue notes that a dial waits for its turn, nil that it does no more. False: it need not begin to wait.
func (p *peer) queue(leave context.CancelFunc) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave = leave
	return leave == nil || !p.renewed
}
