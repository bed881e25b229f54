package dial

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/transport"
)

// Reasons of takeovers beside those of a connection's death.
const (
	byPlan     = "return"   // to a better plane
	byFallback = "fallback" // the connection has died, and its plane did not connect again
)

// TakeoverBuckets are the upper bounds of Takeovers.Buckets; the last bucket has none.
var TakeoverBuckets = [...]time.Duration{
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond,
	300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second,
}

// Takeovers count how often a lane got another connection for one reason, and how long it was without one: from when
// the death of the old one was noticed to the start of the new one.
type Takeovers struct {
	Count   uint64
	Time    time.Duration // of all
	Buckets [len(TakeoverBuckets) + 1]uint64
}

// Fallback counts links that took another plane than the first that both sides list.
type Fallback struct {
	From, To, Reason string
	Links            uint64
}

// Stats are the totals of a node's links. What one connection of a pipe brings to its end stands in pipe.Stats.
type Stats struct {
	Links            int
	Fallbacks        []Fallback
	Takeovers        map[string]Takeovers // by reason
	Down             time.Duration        // of lanes without a connection, those that are now included
	AddressesRefused map[string]uint64    // by reason, of all known nodes
	Planes           []*pipe.PlaneStats
}

// counters is what Stats are made of.
type counters struct {
	mu        sync.Mutex
	fallbacks []Fallback
	takeovers map[string]Takeovers
	down      time.Duration
}

func (c *counters) fellBack(from, to, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.fallbacks {
		if f := &c.fallbacks[i]; f.From == from && f.To == to && f.Reason == reason {
			f.Links++
			return
		}
	}
	c.fallbacks = append(c.fallbacks, Fallback{From: from, To: to, Reason: reason, Links: 1})
}

func (c *counters) tookOver(reason string, elsewhere bool, took time.Duration) {
	if elsewhere && reason != byPlan {
		reason = byFallback
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.takeovers[reason]
	t.Count++
	t.Time += took
	at, _ := slices.BinarySearch(TakeoverBuckets[:], took)
	t.Buckets[at]++
	if c.takeovers == nil {
		c.takeovers = make(map[string]Takeovers)
	}
	c.takeovers[reason] = t
	c.down += took
}

func (c *counters) wasDown(d time.Duration) {
	c.mu.Lock()
	c.down += d
	c.mu.Unlock()
}

// Stats is a snapshot.
func (r *Peers) Stats() Stats {
	s := Stats{AddressesRefused: make(map[string]uint64), Planes: r.cfg.Pipe.Stats.Planes()}
	refuse := func(p Peer) {
		for _, bad := range r.badAddresses(p) {
			s.AddressesRefused[bad.Reason]++
		}
	}
	for _, p := range r.refusedPeers() {
		refuse(p)
	}
	now := r.cfg.Now()
	for _, p := range r.snapshot() {
		for _, d := range p.described() {
			refuse(d)
		}
		if k := p.link.Load(); k != nil {
			s.Links++
			for _, l := range k.lanes {
				if at := l.DownSince(); at != 0 && l.Plane() != "" {
					s.Down += time.Duration(now - at)
				}
			}
		}
	}
	c := &r.stats
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Down += c.down
	s.Fallbacks = slices.Clone(c.fallbacks)
	// A reason that has not been is reported as 0, so that its counter has a beginning.
	s.Takeovers = map[string]Takeovers{
		pipe.DownPeer: {}, pipe.DownSilent: {}, pipe.DownRefused: {}, byFallback: {}, byPlan: {}}
	maps.Copy(s.Takeovers, c.takeovers)
	return s
}

// refusedPeers are the nodes that Add refused.
func (r *Peers) refusedPeers() []Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.refused))
}

// state describes a peer.
func (p *peer) state() State {
	p.mu.Lock()
	st := State{ID: p.id, Name: p.known.usable[p.known.at].Name, Err: p.err}
	p.mu.Unlock()
	if k := p.link.Load(); k != nil {
		st.Lanes, st.Streams, st.Draining = k.up(), k.streams.Open(), k.draining.Load()
		k.mu.Lock()
		st.Plane, st.Fallback, st.Up = k.plane, k.fellBack, st.Lanes > 0 && k.ended == nil
		k.mu.Unlock()
		if at := k.DownSince(); at != 0 {
			st.Down = time.Duration(p.recv.cfg.Now() - at)
		}
	}
	if st.Up {
		st.Err = nil
	}
	return st
}

// State describes one peer.
func (r *Peers) State(id transport.NodeID) (State, bool) {
	r.mu.Lock()
	p, refused := r.peers[id], r.refused[id]
	r.mu.Unlock()
	switch {
	case p != nil:
		return p.state(), true
	case refused.ID == id && !id.IsZero():
		return State{ID: id, Name: refused.Name, Err: r.unusable(refused)}, true
	}
	return State{}, false
}

// States describes all peers, ordered by ID.
func (r *Peers) States() []State {
	var all []State
	for _, p := range r.snapshot() {
		all = append(all, p.state())
	}
	for _, p := range r.refusedPeers() {
		all = append(all, State{ID: p.ID, Name: p.Name, Err: r.unusable(p)})
	}
	slices.SortFunc(all, func(a, b State) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return all
}
