package base

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Places bounds what peers may have unfinished at a listener. Those whose address has had a link have places of their
// own, so that nobody else can take them; and one address takes only its share of them, known or not.
//
// When there is no place, the oldest that is not finished gives its place to the next, once it is older than
// PlaceGrace: who does not mean harm is through by then.
type Places struct {
	known *Known
	mu    sync.Mutex
	pools [2]pool // of strangers, and of those who are known
}

// Of a listener or an endpoint: places of each kind, and how many of them one address may have.
const (
	strangers, strangersShare = 1024, 256
	knowns, knownsShare       = 256, 128
)

// PlaceGrace is how long nobody loses a place.
const PlaceGrace = 250 * time.Millisecond

// pool is the places of one kind.
type pool struct {
	most, share int
	taken       list.List // of *Place, oldest first
	of          map[netip.Addr]int
}

// Place is one that was taken.
type Place struct {
	all      *Places
	pool     *pool
	at       *list.Element // nil when it was left or lost
	host     netip.Addr
	since    time.Time
	evict    func() // nil: it cannot be taken away
	finished bool
	evicted  bool
}

// NewPlaces makes places that are all free.
func NewPlaces(known *Known) *Places {
	return &Places{known: known, pools: [2]pool{
		{most: strangers, share: strangersShare, of: make(map[netip.Addr]int)},
		{most: knowns, share: knownsShare, of: make(map[netip.Addr]int)},
	}}
}

// Take takes a place for the peer at addr; nil if there is none. evict ends what has the place, when it must go; it
// must not wait. nil means that it cannot be ended.
func (p *Places) Take(addr net.Addr, evict func()) *Place {
	host := Host(addr)
	place := &Place{all: p, host: host, since: time.Now(), evict: evict, pool: &p.pools[0]}
	if p.known.has(host) {
		place.pool = &p.pools[1]
	}
	p.mu.Lock()
	end, ok := place.pool.room(place)
	if ok {
		place.pool.of[host]++
		place.at = place.pool.taken.PushBack(place)
	}
	p.mu.Unlock()
	if end != nil {
		end()
	}
	if !ok {
		return nil
	}
	return place
}

// room makes room for a place, if there must be any. end ends who has lost its own.
func (l *pool) room(next *Place) (end func(), ok bool) {
	own := l.of[next.host] >= l.share
	if !own && l.taken.Len() < l.most {
		return nil, true
	}
	for e := l.taken.Front(); e != nil; e = e.Next() {
		p := e.Value.(*Place)
		if next.since.Sub(p.since) < PlaceGrace {
			break
		}
		if p.evict != nil && !p.finished && (!own || p.host == next.host) {
			p.evicted = true
			l.remove(p)
			return p.evict, true
		}
	}
	return nil, false
}

func (l *pool) remove(p *Place) {
	if p.at == nil {
		return
	}
	l.taken.Remove(p.at)
	p.at = nil
	l.finish(p)
}

// finish takes p out of its address' share.
func (l *pool) finish(p *Place) {
	if p.finished {
		return
	}
	p.finished = true
	if l.of[p.host]--; l.of[p.host] == 0 {
		delete(l.of, p.host)
	}
}

// Finish says that the peer has done its part. It keeps its place until Leave, but does not lose it any more, and has
// no part in its address' share: what it waits for is this side.
func (p *Place) Finish() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.pool.finish(p)
}

// Leave gives the place back. It may be called more than once.
func (p *Place) Leave() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.pool.remove(p)
}

// Evicted says whether the place was lost to another one.
func (p *Place) Evicted() bool {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	return p.evicted
}

// Taken is how many places are taken.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pools[0].taken.Len() + p.pools[1].taken.Len()
}
