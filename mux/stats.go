package mux

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// writeReason is why a write began.
type writeReason int

const (
	writeFlush  writeReason = iota // a Flush, the lane was idle
	writeUrgent                    // control or a first record waited
	writeFull                      // a whole write's worth waited
	writeGap                       // the gap was over
	writeTick                      // an owed CONSUMED or a forgotten Flush
	writeReasons
)

var writeReasonNames = [writeReasons]string{"flush", "urgent", "full", "gap", "tick"}

// Reasons why records are dropped without an error.
const (
	dropStale   = "stale"    // an earlier use of the slot, or a lane that the stream has left
	dropFree    = "free"     // nobody uses the slot
	dropKey     = "key"      // OPEN with a wrong key or number
	dropEarly   = "early"    // DATA before a right OPEN
	dropClosing = "closing"  // the application has its end already
	dropOverrun = "overflow" // control that could not be kept within its bound
)

var dropReasons = []string{dropStale, dropFree, dropKey, dropEarly, dropClosing, dropOverrun}

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

// planeCounters are the totals of one plane, dead lanes included: the proof of what carried the tokens.
type planeCounters struct {
	name                  string
	recordsIn, recordsOut atomic.Uint64
	bytesIn, bytesOut     atomic.Uint64
}

// PlaneStats are the totals of one plane.
type PlaneStats struct {
	RecordsIn, RecordsOut uint64
	BytesIn, BytesOut     uint64
}

// Fallback counts links that took another plane than the first that both sides list.
type Fallback struct {
	From, To string
	Reason   string // timeout, refused, identity, other
	Links    uint64
}

// batchBuckets is the number of buckets of records per write: 1, 2, 4, ... 4096 and more.
const batchBuckets = 14

// counters are the totals of a node. They are added to once per read, write or stream, never per record.
type counters struct {
	opened                atomic.Uint64
	ended                 [16]atomic.Uint64 // by wire.EndType
	recordsIn, recordsOut atomic.Uint64
	bytesIn, bytesOut     atomic.Uint64
	reads, wakes          atomic.Uint64
	sinkCalls, sinkSlow   atomic.Uint64
	writes                [writeReasons]atomic.Uint64
	perWrite              [batchBuckets]atomic.Uint64
	forgotten             atomic.Uint64
	moved                 atomic.Uint64
	stalls                atomic.Uint64
	refused               atomic.Uint64
	deaths                labelled
	drops                 labelled

	mu        sync.Mutex
	planes    []*planeCounters
	fallbacks []Fallback
}

// plane returns the counters of a plane; a lane asks once.
func (c *counters) plane(name string) *planeCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.planes {
		if p.name == name {
			return p
		}
	}
	p := &planeCounters{name: name}
	c.planes = append(c.planes, p)
	return p
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

func (c *counters) init() { c.deaths.names, c.drops.names = deathReasons, dropReasons }

func (c *counters) wrote(reason writeReason, records, n int) {
	c.writes[reason].Add(1)
	c.bytesOut.Add(uint64(n))
	if records > 0 {
		c.recordsOut.Add(uint64(records))
		c.perWrite[min(bits.Len(uint(records-1)), batchBuckets-1)].Add(1)
	}
}

func (c *counters) read(records, n int) {
	c.reads.Add(1)
	c.bytesIn.Add(uint64(n))
	c.recordsIn.Add(uint64(records))
}

func (c *counters) end(t wire.EndType) { c.ended[t].Add(1) }

// Stats is a snapshot of a Sender or Receiver. Counters only grow.
type Stats struct {
	StreamsOpened uint64
	StreamsEnded  map[string]uint64 // by type of end
	OpenStreams   int64
	ClosingSlots  int64 // Receiver: streams whose application has its end and whose slot waits for the worker's END
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
	RecordsPerWrite  [batchBuckets]uint64
	ForgottenFlushes uint64 // what was Put and only the ticker wrote
	StreamsMoved     uint64
	WindowStalls     uint64
	Refused          uint64            // terms that were refused
	LaneDeaths       map[string]uint64 // by reason
	RecordsDropped   map[string]uint64 // by reason
	ReplayBytes      int64             // Sender: bytes kept until they are consumed
	CommittedBytes   int64             // windows given (Receiver) or accepted (Sender)
	BufferedBytes    int64             // Receiver: bytes that wait for the application
	Links            int
	Lanes            []LaneStats           // those that are up
	Planes           map[string]PlaneStats // totals, dead lanes included
	Fallbacks        []Fallback
	AddressesRefused map[string]uint64 // Receiver: addresses of known nodes that are not dialled, by reason
}

// LaneStats describes one lane that is up.
type LaneStats struct {
	Peer       transport.NodeID
	PeerName   string
	Plane      string
	Lane       int
	Serial     uint64
	Local      string
	Remote     string
	Leaving    bool // its link has gone to another plane; it ends with its last stream
	Streams    int64
	QueueBytes int
	OwedEnds   int           // ended streams of which the worker may not know yet that their END came (at a Receiver)
	RTT        time.Duration // of the last PING, 0 = none yet (measured by Receivers)
	BytesIn    uint64
	BytesOut   uint64
	RecordsIn  uint64
	RecordsOut uint64
}

func (c *counters) snapshot() Stats {
	s := Stats{
		StreamsOpened: c.opened.Load(), StreamsEnded: make(map[string]uint64), RecordsIn: c.recordsIn.Load(), RecordsOut: c.recordsOut.Load(),
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), Reads: c.reads.Load(), Wakes: c.wakes.Load(),
		SinkCalls: c.sinkCalls.Load(), SinkSlow: c.sinkSlow.Load(), Writes: make(map[string]uint64), ForgottenFlushes: c.forgotten.Load(),
		StreamsMoved: c.moved.Load(), WindowStalls: c.stalls.Load(), Refused: c.refused.Load(),
		LaneDeaths: c.deaths.snapshot(), RecordsDropped: c.drops.snapshot(),
	}
	for _, t := range wire.EndTypes() {
		s.StreamsEnded[t.String()] = c.ended[t].Load()
	}
	for r, name := range writeReasonNames {
		s.Writes[name] = c.writes[r].Load()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Planes, s.Fallbacks = make(map[string]PlaneStats), slices.Clone(c.fallbacks)
	for _, p := range c.planes {
		s.Planes[p.name] = PlaneStats{RecordsIn: p.recordsIn.Load(), RecordsOut: p.recordsOut.Load(), BytesIn: p.bytesIn.Load(), BytesOut: p.bytesOut.Load()}
	}
	for i := range s.RecordsPerWrite {
		s.RecordsPerWrite[i] = c.perWrite[i].Load()
	}
	return s
}

func (l *lane) snapshot(peer transport.NodeID, name string) LaneStats {
	l.mu.Lock()
	queued, owed := l.queued, len(l.owed.ends)+len(l.owed.due)+len(l.owed.said)
	l.mu.Unlock()
	s := LaneStats{
		Peer: peer, PeerName: name, Plane: l.info.Plane, Lane: l.index, Serial: l.serial, Leaving: l.leaving.Load(), Streams: l.open.Load(), QueueBytes: queued, OwedEnds: owed,
		RTT: time.Duration(l.rtt.Load()), BytesIn: l.bytesIn.Load(), BytesOut: l.bytesOut.Load(),
		RecordsIn: l.recordsIn.Load(), RecordsOut: l.recordsOut.Load(),
	}
	if l.info.Local != nil {
		s.Local = l.info.Local.String()
	}
	if l.info.Remote != nil {
		s.Remote = l.info.Remote.String()
	}
	return s
}
