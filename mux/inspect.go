package mux

import (
	"encoding/binary"
	"math"
	"net"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// What a frontend's stream remembers of itself, for people who look: the lanes it was on and the headers of its last records. The
// lane's reader writes it with the stream's lock held, which it holds anyway. A header costs a few stores into the stream, no allocation
// and no reading of the clock; the memory is fixed but for moves, which are rare and kept up to a bound.

const (
	// inspectHeads is how many headers of records a stream keeps.
	inspectHeads = 16
	// inspectLanes is how many lanes that a stream has left it keeps; the oldest goes.
	inspectLanes = 8
	// headShift is how exactly the time of a header is kept: 8.2 µs. 32 bits of it are 9.7 hours, and later ones say so much.
	headShift = 13
)

// heads are the headers of a stream's last records, 136 bytes. An offset is not kept: it follows from what was received and the lengths.
type heads struct {
	n    uint32 // noted in all, the newest at (n-1) mod inspectHeads; it may wrap, and is then a little less than all
	line [inspectHeads / headsPerLine]headLine
}

// headLine is a line of the processor's cache.
type headLine struct {
	h     [headsPerLine]head
	still uint64 // never written, so that warm may read it
}

const headsPerLine = 8

// head is an age u32, a length u16 and a kind u8. No record that a stream notes is longer: DATA and END are not.
type head [7]byte

func (r *heads) at(n uint32) *head {
	return &r.line[n/headsPerLine%uint32(len(r.line))].h[n%headsPerLine]
}

// note takes a header that came age nanoseconds after the stream was minted.
func (r *heads) note(h wire.Header, age int64) {
	e := r.at(r.n)
	binary.LittleEndian.PutUint32(e[:4], uint32(min(uint64(max(age, 0))>>headShift, math.MaxUint32)))
	binary.LittleEndian.PutUint16(e[4:6], uint16(min(h.Length, math.MaxUint16)))
	e[6] = byte(h.Kind)
	if r.n++; r.n == 0 {
		r.n = inspectHeads
	}
}

// list gives the headers, oldest first. end is the offset behind the newest.
func (r *heads) list(end uint64) []RecordHead {
	n := min(r.n, inspectHeads)
	out := make([]RecordHead, n)
	for i := range n {
		e := r.at(r.n - 1 - i)
		h := &out[n-1-i]
		h.Kind, h.Length = wire.Kind(e[6]).String(), int(binary.LittleEndian.Uint16(e[4:6]))
		h.Age = time.Duration(binary.LittleEndian.Uint32(e[:4])) << headShift
		end -= min(end, uint64(wire.HeaderSize+h.Length))
		h.Offset = end
	}
	return out
}

// stay is a stream's time on a lane, in node times.
type stay struct {
	plane    string
	lane     int
	serial   uint64
	remote   net.Addr
	from, to int64 // to is 0 while it is there
}

func stayOn(l *lane, now int64) stay {
	return stay{plane: l.info.Plane, lane: l.index, serial: l.serial, remote: l.info.Remote, from: now}
}

// moveTo notes that the stream goes on on another lane. The lock is held.
func (s *InStream) moveTo(l *lane, now int64) {
	if len(s.past) == inspectLanes {
		s.past = slices.Delete(s.past, 0, 1)
	}
	s.past = append(s.past, s.stay)
	s.stay = stayOn(l, now)
}

// leave notes that the stream has no lane. The lock is held.
func (s *InStream) leave(now int64) {
	s.lane = nil
	if s.stay.to == 0 {
		s.stay.to = now
	}
}

// LaneStay is a stream's time on a lane.
type LaneStay struct {
	Plane  string
	Lane   int
	Serial uint64 // of the connection
	Remote string // address of the worker's end
	From   time.Time
	To     time.Time // zero while the stream is there
}

// RecordHead is the header of a record that came from the worker.
type RecordHead struct {
	Kind   string        // OPEN, DATA, DATA_MORE, END
	Length int           // of its body, in bytes
	Offset uint64        // of the header in the stream's string
	Age    time.Duration // from the mint to its arrival, to 8.2 µs, at most 9.7 hours
}

// StreamInfo describes one stream of a Receiver at one moment. It keeps nothing of the stream alive.
type StreamInfo struct {
	Node       transport.NodeID
	Link       uint64
	Slot       uint32
	Generation uint8
	Number     uint64
	// State: minted (no OPEN yet), live, closing (the application has its end, the worker's is awaited), ended.
	State string
	// Window is the most bytes of the stream's string that may be unconsumed. Received, Consumed and Reported are offsets in it: what came,
	// what the application has taken, and what the worker was told of that.
	Window, Received, Consumed, Reported uint64
	Records, Bytes                       uint64 // whole records and their payload
	Buffered                             int    // payload bytes that wait for the application, parts of a record too
	StopAsked                            bool
	Minted                               time.Time
	First, Last                          time.Time // when the first record came and the last one, zero before
	Moves                                uint32    // how often the stream has gone on on another lane
	Lanes                                []LaneStay
	End                                  *End // nil while it has none
	Ended                                time.Time

	heads heads
}

// Heads are the headers of the last records, oldest first, at most 16. END is among them unless the stream was given up before.
func (i *StreamInfo) Heads() []RecordHead { return i.heads.list(i.Received) }

var inStateNames = [...]string{inMinted: "minted", inLive: "live", inClosing: "closing", inFree: "ended"}

// Inspect describes the stream.
func (s *InStream) Inspect() StreamInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep()
	i := StreamInfo{
		Node: s.link.peer.id, Link: s.link.id, Slot: s.slot.Index(), Generation: s.slot.Generation(), Number: s.number, State: inStateNames[s.state],
		Window: uint64(s.window), Received: s.received, Consumed: s.received - s.unread, Reported: s.reported, Records: s.records, Bytes: s.bytes,
		Buffered: len(s.ready) - prefix*int(s.readyN) + len(s.assembly), StopAsked: s.stopAsked, Moves: s.move, heads: s.heads,
		Minted: s.link.time(s.minted), First: s.link.time(s.firstData), Last: s.link.time(s.lastData), Ended: s.link.time(s.endedAt),
	}
	if s.end != nil {
		end := *s.end
		i.End = &end
	}
	i.Lanes = make([]LaneStay, 0, len(s.past)+1)
	for _, y := range append(s.past[:len(s.past):len(s.past)], s.stay) {
		l := LaneStay{Plane: y.plane, Lane: y.lane, Serial: y.serial, From: s.link.time(y.from), To: s.link.time(y.to)}
		if y.remote != nil {
			l.Remote = y.remote.String()
		}
		i.Lanes = append(i.Lanes, l)
	}
	return i
}

// Progress is what of a stream tells how its worker does. It is cheap.
type Progress struct {
	State       string // as in StreamInfo
	Records     uint64
	First, Last time.Time // when the first record came and the last one, zero before
}

// Progress says how far the stream is.
func (s *InStream) Progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Progress{State: inStateNames[s.state], Records: s.records, First: s.link.time(s.firstData), Last: s.link.time(s.lastData)}
}

// time turns a node time into a point in time; 0 is none.
func (n *node) time(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return n.epoch.Add(time.Duration(at - 1))
}
