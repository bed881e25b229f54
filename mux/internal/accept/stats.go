package accept

import (
	"sync/atomic"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// Stats are totals and states of a worker's links.
type Stats struct {
	Links, Lanes, Up int               // lanes of the links, and those with a connection
	Handshakes       int               // in progress
	Evicted          uint64            // handshakes that were given up because others needed their place
	Refused          map[string]uint64 // connections, by the name of the GOAWAY that said it
	// Takeovers by whether the lane had a connection before, and for how long in all it had none. The first connection
	// of a lane is none.
	Planned, Resumed uint64
	DownNanos        uint64
}

type counters struct {
	refused          [wire.AwayClosing + 1]atomic.Uint64
	planned, resumed atomic.Uint64
	downNanos        atomic.Uint64
}

func (c *counters) refuse(code wire.GoAwayCode) { c.refused[code].Add(1) }

// tookOver counts a takeover of a lane that had no connection since from, or has one if that is 0.
func (c *counters) tookOver(from, now int64) {
	if from == 0 {
		c.planned.Add(1)
		return
	}
	c.resumed.Add(1)
	c.downNanos.Add(uint64(max(now-from, 0)))
}

// Stats is a snapshot.
func (n *Links) Stats() Stats {
	c := &n.counts
	st := Stats{Planned: c.planned.Load(), Resumed: c.resumed.Load(), DownNanos: c.downNanos.Load()}
	st.Refused = make(map[string]uint64)
	for code := range c.refused {
		st.Refused[wire.GoAwayCode(code).String()] = c.refused[code].Load()
	}
	st.Handshakes, st.Evicted = n.places.snapshot()
	for _, k := range n.Links() {
		st.Links++
		for _, l := range k.lanes {
			st.Lanes++
			if l.Up() {
				st.Up++
			}
		}
	}
	return st
}
