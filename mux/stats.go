package mux

import (
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Reasons why records are dropped without an error.
const (
	dropStale   = "stale"   // an earlier use of the slot, or a lane that is not the stream's
	dropFree    = "free"    // nobody uses the slot
	dropKey     = "key"     // OPEN with a wrong key or number
	dropEarly   = "early"   // DATA before a right OPEN
	dropClosing = "closing" // the application has its end already
)

var dropReasons = []string{dropStale, dropFree, dropKey, dropEarly, dropClosing}

// labelled is a fixed set of counters by name.
type labelled struct {
	names  []string
	counts [8]atomic.Uint64
}

func (c *labelled) add(name string) {
	for i, n := range c.names {
		if n == name {
			c.counts[i].Add(1)
			return
		}
	}
}

func (c *labelled) snapshot() map[string]uint64 {
	m := make(map[string]uint64, len(c.names))
	for i, n := range c.names {
		m[n] = c.counts[i].Load()
	}
	return m
}

// counters are the totals of a node's streams; its pipes count their own. They are added to once per read or stream,
// never per record.
type counters struct {
	opened              atomic.Uint64
	ended               [16]atomic.Uint64 // by wire.EndType
	wakes               atomic.Uint64
	sinkCalls, sinkSlow atomic.Uint64
	stalls              atomic.Uint64
	refused             atomic.Uint64
	drops               labelled
}

func (c *counters) end(t wire.EndType) { c.ended[t].Add(1) }

// PlaneStats are the totals of one plane.
type PlaneStats struct {
	RecordsIn, RecordsOut uint64
	BytesIn, BytesOut     uint64
}

// Stats is a snapshot of a WorkerNode or FrontendNode. Counters only grow.
type Stats struct {
	StreamsOpened uint64
	StreamsEnded  map[string]uint64 // by type of end
	OpenStreams   int64
	ClosingSlots  int64 // FrontendNode: streams whose application has its end and whose slot waits for the worker's END
	RecordsIn     uint64
	RecordsOut    uint64
	BytesIn       uint64
	BytesOut      uint64
	Reads         uint64
	Wakes         uint64 // consumers woken, pull
	SinkCalls     uint64
	SinkSlow      uint64            // sink calls (or runs of at most 16 in one pass), and ends of passes, over 10 ms
	Writes        map[string]uint64 // by reason
	// RecordsPerWrite counts writes by how many records they carried: bucket i holds up to 2^i, the last all above.
	RecordsPerWrite  [pipe.WriteBuckets]uint64
	ForgottenFlushes uint64 // what was Put and only the ticker wrote
	WindowStalls     uint64
	Refused          uint64            // terms that were refused
	RecordsDropped   map[string]uint64 // by reason
	RecordsSkipped   uint64            // of streams that were killed before they were sent
	CommittedBytes   int64             // windows given (FrontendNode) or accepted (WorkerNode), and LogBytes
	BufferedBytes    int64             // FrontendNode: bytes that wait for the application
	Links            int
	Lanes            []LaneStats           // of all links
	Planes           map[string]PlaneStats // totals, ended connections included
	Fallbacks        []Fallback
	AddressesRefused map[string]uint64 // FrontendNode: addresses of known nodes that are not dialled, by reason

	LaneDeaths    map[string]uint64    // connections that have ended, by reason
	LaneTakeovers map[string]Takeovers // lanes that went on over another connection, by reason

	LaneDownSeconds float64 // lanes without a connection, in all
	ResentBytes     uint64
	LogBytes        int64   // kept for sending again
	LogFullSeconds  float64 // lanes with a full log and something that waits, in all
	AcksAlone       uint64  // ACKs that were a write of their own
	AcksAlong       uint64  // ACKs beside other records
}

// LaneStats describes one lane.
type LaneStats struct {
	Peer       transport.NodeID
	PeerName   string
	Plane      string // of its connection, or of the last one
	Lane       int
	Up         bool // it has a connection
	Local      string
	Remote     string
	Streams    int64
	QueueBytes int           // wait to be sent
	LogBytes   int           // sent and not acknowledged
	RTT        time.Duration // of the last PING, 0 = none yet (measured by Receivers)
	BytesIn    uint64
	BytesOut   uint64
	RecordsIn  uint64
	RecordsOut uint64
}

// snapshot is what all nodes count.
func (n *node) snapshot() Stats {
	c, p := &n.stats, &n.pipes
	s := Stats{
		StreamsOpened: c.opened.Load(), StreamsEnded: make(map[string]uint64), Wakes: c.wakes.Load(),
		SinkCalls: c.sinkCalls.Load(), SinkSlow: c.sinkSlow.Load(), WindowStalls: c.stalls.Load(),
		Refused: c.refused.Load(), RecordsDropped: c.drops.snapshot(), CommittedBytes: n.budget.Used(),
		LogBytes:  n.budget.Logs(),
		RecordsIn: p.RecordsIn.Load(), RecordsOut: p.RecordsOut.Load(),
		BytesIn: p.BytesIn.Load(), BytesOut: p.BytesOut.Load(),
		Reads: p.Reads.Load(), Writes: make(map[string]uint64), ForgottenFlushes: p.Forgotten.Load(),
		RecordsSkipped: p.Skipped.Load(), ResentBytes: p.Resent.Load(), AcksAlone: p.AcksAlone.Load(),
		AcksAlong: p.AcksAlong.Load(), LogFullSeconds: time.Duration(p.FullNanos.Load()).Seconds(),
		LaneDeaths: p.Deaths.Snapshot(), Planes: make(map[string]PlaneStats),
	}
	for _, t := range wire.EndTypes() {
		s.StreamsEnded[t.String()] = c.ended[t].Load()
	}
	for r := range pipe.Reasons {
		s.Writes[r.String()] = p.Writes[r].Load()
	}
	for i := range s.RecordsPerWrite {
		s.RecordsPerWrite[i] = p.PerWrite[i].Load()
	}
	for _, plane := range p.Planes() {
		s.Planes[plane.Name] = PlaneStats{RecordsIn: plane.RecordsIn.Load(), RecordsOut: plane.RecordsOut.Load(),
			BytesIn: plane.BytesIn.Load(), BytesOut: plane.BytesOut.Load()}
	}
	return s
}

// laneStats fills in what a pipe knows.
func laneStats(p *pipe.Pipe, l LaneStats) LaneStats {
	l.LogBytes, l.QueueBytes = p.Log()
	l.RTT = p.RTT()
	l.BytesIn, l.BytesOut = p.BytesIn.Load(), p.BytesOut.Load()
	l.RecordsIn, l.RecordsOut = p.RecordsIn.Load(), p.RecordsOut.Load()
	return l
}
