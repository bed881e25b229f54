package promplane

import (
	"sync"

	"github.com/laneway-ai/laneway/responseplane"
)

type inOut struct{ in, out uint64 }

func (a inOut) plus(b inOut) inOut { return inOut{a.in + b.in, a.out + b.out} }

// lifeOf names one life of a lane.
type lifeOf struct {
	peer   responseplane.NodeID
	plane  string
	lane   int
	serial uint64
}

// planeRecords adds up the records of each plane over lanes that come and go. With one plane in use the totals are its own, and exact. With
// several, a snapshot has the counts of lanes that are up only; those of a lane that has ended stay as they were last seen.
type planeRecords struct {
	mu   sync.Mutex
	seen map[string]bool  // planes that can have carried something
	up   map[lifeOf]inOut // at the last update
	gone map[string]inOut // of lanes that have ended
}

// newPlaneRecords knows the planes that are configured: one that carried nothing is reported as 0.
func newPlaneRecords(planes []string) *planeRecords {
	p := &planeRecords{seen: make(map[string]bool), gone: make(map[string]inOut)}
	for _, plane := range planes {
		p.seen[plane] = true
	}
	return p
}

// update returns the totals of every plane.
func (p *planeRecords) update(s responseplane.Stats) map[string]inOut {
	p.mu.Lock()
	defer p.mu.Unlock()
	up := make(map[lifeOf]inOut, len(s.Lanes))
	for _, l := range s.Lanes {
		p.seen[l.Plane] = true
		up[lifeOf{l.Peer, l.Plane, l.Lane, l.Serial}] = inOut{l.RecordsIn, l.RecordsOut}
	}
	for life, n := range p.up {
		if _, still := up[life]; !still {
			p.gone[life.plane] = p.gone[life.plane].plus(n)
		}
	}
	p.up = up

	total := make(map[string]inOut, len(p.seen))
	if len(p.seen) == 1 {
		for plane := range p.seen {
			total[plane] = inOut{s.RecordsIn, s.RecordsOut}
		}
		return total
	}
	for plane := range p.seen {
		total[plane] = p.gone[plane]
	}
	for life, n := range up {
		total[life.plane] = total[life.plane].plus(n)
	}
	return total
}
