package refplane

import (
	"sync/atomic"

	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/responseplane"
)

// counters are the totals of one side.
type counters struct {
	recordsIn, recordsOut, bytesIn, bytesOut, reads, writes, wakes, sinkCalls atomic.Uint64
	opened                                                                    atomic.Uint64
	open, conns                                                               atomic.Int64
}

// stats gives them the shape of the plane's own. What there is no such thing as here stays zero.
func (c *counters) stats(plane string) responseplane.Stats {
	s := responseplane.Stats{
		RecordsIn: c.recordsIn.Load(), RecordsOut: c.recordsOut.Load(), BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(),
		Reads: c.reads.Load(), Wakes: c.wakes.Load(), SinkCalls: c.sinkCalls.Load(), StreamsOpened: c.opened.Load(), OpenStreams: c.open.Load(),
		Writes: map[string]uint64{"write": c.writes.Load()},
		Planes: map[string]mux.PlaneStats{plane: {RecordsIn: c.recordsIn.Load(), RecordsOut: c.recordsOut.Load(), BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load()}},
	}
	for range c.conns.Load() {
		s.Lanes = append(s.Lanes, responseplane.LaneStats{Plane: plane})
	}
	return s
}
