package pipe

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// Reason says why a lane wrote.
type Reason uint8

// Reasons of writes.
const (
	ByFlush  Reason = iota // somebody called Flush
	ByUrgent               // an urgent record or control
	ByFull                 // a whole write's worth
	ByGap                  // the gap was over
	ByTick                 // a forgotten Flush, or the ticker
	Reasons
)

var reasonNames = [Reasons]string{"flush", "urgent", "full", "gap", "tick"}

func (r Reason) String() string { return reasonNames[r] }

// WriteBuckets is the number of buckets of records per write: 1, 2, 4, ... 4096 and more.
const WriteBuckets = 14

// Stats are the totals of a node's pipes. They are added to once per read or write, never per record.
type Stats struct {
	RecordsIn, RecordsOut atomic.Uint64
	BytesIn, BytesOut     atomic.Uint64
	Reads                 atomic.Uint64
	Writes                [Reasons]atomic.Uint64
	PerWrite              [WriteBuckets]atomic.Uint64
	Forgotten             atomic.Uint64 // flushes
	Skipped               atomic.Uint64 // records that were wanted no more before they were sent
	Resent                atomic.Uint64 // bytes
	AcksAlone, AcksAlong  atomic.Uint64
	FullNanos             atomic.Uint64 // time with a full log and something that waited
	Deaths                Deaths

	mu     sync.Mutex
	planes []*PlaneStats
}

// Plane returns the totals of a plane; a session asks once.
func (s *Stats) Plane(name string) *PlaneStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.planes {
		if p.Name == name {
			return p
		}
	}
	p := &PlaneStats{Name: name}
	s.planes = append(s.planes, p)
	return p
}

// Planes are the totals of all planes.
func (s *Stats) Planes() []*PlaneStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.planes)
}

// Deaths count the ends of connections by reason.
type Deaths struct {
	counts [len(deathReasons)]atomic.Uint64
}

// DownClosed and DownHandshake are reasons that the layer above counts: by this side on purpose, and before it was up.
const (
	DownClosed    = "closed"
	DownHandshake = "handshake"
)

var deathReasons = [...]string{DownClosed, DownPeer, DownSilent, DownProtocol, DownRefused, DownHandshake}

// Add counts one.
func (d *Deaths) Add(reason string) {
	for i, n := range deathReasons {
		if n == reason {
			d.counts[i].Add(1)
		}
	}
}

// Snapshot is the counts by reason.
func (d *Deaths) Snapshot() map[string]uint64 {
	m := make(map[string]uint64, len(deathReasons))
	for i, n := range deathReasons {
		m[n] = d.counts[i].Load()
	}
	return m
}

// PlaneStats are the totals of one plane, ended connections included: the proof of what carried the tokens.
type PlaneStats struct {
	Name                  string
	RecordsIn, RecordsOut atomic.Uint64
	BytesIn, BytesOut     atomic.Uint64
}

// Traffic is what one pipe has carried, over all its connections.
type Traffic struct {
	RecordsIn, RecordsOut atomic.Uint64
	BytesIn, BytesOut     atomic.Uint64
	rtt, ponged           atomic.Int64
}

// wrote counts a write. The lock is held.
func (p *Pipe) wrote(why Reason, records, n int) {
	s := p.cfg.Stats
	s.Writes[why].Add(1)
	s.BytesOut.Add(uint64(n))
	p.BytesOut.Add(uint64(n))
	if p.run != nil && p.run.Plane != nil {
		p.run.Plane.BytesOut.Add(uint64(n))
		p.run.Plane.RecordsOut.Add(uint64(records))
	}
	if records > 0 {
		s.RecordsOut.Add(uint64(records))
		p.RecordsOut.Add(uint64(records))
		s.PerWrite[min(bits.Len(uint(records-1)), WriteBuckets-1)].Add(1)
	}
}

// read counts a read.
func (p *Pipe) read(r *run, records, n int) {
	s := p.cfg.Stats
	s.Reads.Add(1)
	s.BytesIn.Add(uint64(n))
	s.RecordsIn.Add(uint64(records))
	p.BytesIn.Add(uint64(n))
	p.RecordsIn.Add(uint64(records))
	if r.Plane != nil {
		r.Plane.BytesIn.Add(uint64(n))
		r.Plane.RecordsIn.Add(uint64(records))
	}
}

// Log is how many bytes are kept for sending again, and how many wait to be sent.
func (p *Pipe) Log() (kept, unsent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.sealed - p.acked), p.unsent()
}
