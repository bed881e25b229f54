package refplane

import (
	"errors"
	"io"
	"math/bits"
	"sync/atomic"

	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/responseplane"
)

// ends are the ends that a response can have here.
var ends = []responseplane.EndKind{responseplane.EndComplete, responseplane.EndFailed, responseplane.EndKilled,
	responseplane.EndDeadline, responseplane.EndLost}

// counters are the totals of one side.
type counters struct {
	recordsIn, recordsOut, bytesIn, bytesOut atomic.Uint64
	reads, writes, wakes, sinkCalls, opened  atomic.Uint64
	open, conns                              atomic.Int64
	ended                                    [16]atomic.Uint64 // by kind

	perWrite [len(responseplane.Stats{}.RecordsPerWrite)]atomic.Uint64
}

// end counts how a response ended: nil or io.EOF = complete.
func (c *counters) end(err error) {
	kind := responseplane.EndComplete
	if err != nil && !errors.Is(err, io.EOF) {
		kind = responseplane.EndLost
		if e, ok := errors.AsType[*responseplane.Error](err); ok {
			kind = e.Kind
		}
	}
	c.ended[int(kind)%len(c.ended)].Add(1)
}

// wrote counts writes of so many records each.
func (c *counters) wrote(writes, records int) {
	if records > 0 {
		c.perWrite[min(bits.Len(uint(records-1)), len(c.perWrite)-1)].Add(uint64(writes))
	}
}

// stats gives them the shape of the plane's own. What there is no such thing as here stays zero.
func (c *counters) stats(plane string) responseplane.Stats {
	s := responseplane.Stats{
		RecordsIn: c.recordsIn.Load(), RecordsOut: c.recordsOut.Load(), BytesIn: c.bytesIn.Load(),
		BytesOut: c.bytesOut.Load(),
		Reads:    c.reads.Load(), Wakes: c.wakes.Load(), SinkCalls: c.sinkCalls.Load(), StreamsOpened: c.opened.Load(),
		OpenStreams: c.open.Load(),
		Writes:      map[string]uint64{"write": c.writes.Load()}, StreamsEnded: map[string]uint64{},
		Links:         int(c.conns.Load()),
		LaneTakeovers: map[string]responseplane.Takeovers{"none": {}}, // an arm has none, and the report says so
		Planes: map[string]mux.PlaneStats{plane: {RecordsIn: c.recordsIn.Load(), RecordsOut: c.recordsOut.Load(),
			BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load()}},
	}
	for _, kind := range ends {
		s.StreamsEnded[kind.String()] = c.ended[kind].Load()
	}
	for i := range c.perWrite {
		s.RecordsPerWrite[i] = c.perWrite[i].Load()
	}
	for range c.conns.Load() {
		s.Lanes = append(s.Lanes, responseplane.LaneStats{Plane: plane, Up: true})
	}
	return s
}
