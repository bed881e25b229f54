package mux

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// What a frontend's stream remembers of itself, for people who look: the headers of its last records. The lane's reader
// writes them with the stream's lock held, which it holds anyway. A header costs a few stores into the stream, no
// allocation and no reading of the clock.

const (
	// inspectHeads is how many headers of records a stream keeps.
	inspectHeads = 16
	// headShift is how exactly the time of a header is kept: 8.2 µs. 32 bits of it are 9.7 hours, and later ones say
	// so much.
	headShift = 13
)

// heads are the headers of a stream's last records. An offset is not kept: it follows from what was received and the
// lengths.
type heads struct {
	n uint32 // noted in all, the newest at (n-1) mod inspectHeads; it may wrap, and is then a little less than all
	h [inspectHeads]head
}

// head is an age u32, a length u16 and a kind u8. No record that a stream notes is longer: DATA and END are not.
type head [7]byte

func (r *heads) at(n uint32) *head { return &r.h[n%inspectHeads] }

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
		if k := wire.Kind(e[6]); k == wire.Data || k == wire.DataMore {
			end -= min(end, uint64(wire.HeaderSize+h.Length))
		}
		h.Offset = end
	}
	return out
}

// LaneStay is a stream's time on one connection of its lane.
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
	Offset uint64        // of the header in all DATA of the stream, headers included
	Age    time.Duration // from the mint to its arrival, to 8.2 µs, at most 9.7 hours
}

// StreamInfo describes one stream of a FrontendNode at one moment. It keeps nothing of the stream alive.
type StreamInfo struct {
	Node       transport.NodeID
	Link       uint64
	Slot       uint32
	Generation uint8
	Number     uint64
	// State: minted (no OPEN yet), live, closing (the application has its end, the worker's is awaited), ended.
	State string
	// Window is the most bytes of DATA, headers included, that may be unconsumed. Of those, Received came, Consumed
	// were taken by the application, and Reported are what the worker was told of that.
	Window, Received, Consumed, Reported uint64
	Records, Bytes                       uint64 // whole records and their payload
	Buffered                             int    // payload bytes that wait for the application, parts of a record too
	StopAsked                            bool
	Minted                               time.Time
	First, Last                          time.Time // when the first record came and the last one, zero before
	Moves                                uint32    // how often the stream's lane has gone on over another connection
	Lanes                                []LaneStay
	End                                  *End // nil while it has none
	Ended                                time.Time

	heads heads
}

// Heads are the headers of the last records, oldest first, at most 16. END is among them unless the stream was given
// up before.
func (i *StreamInfo) Heads() []RecordHead { return i.heads.list(i.Received) }

var inStateNames = [...]string{inMinted: "minted", inLive: "live", inClosing: "closing", inFree: "ended"}

// Inspect describes the stream.
func (s *InStream) Inspect() StreamInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep()
	at := s.link.time
	i := StreamInfo{
		Node: s.Node(), Link: s.link.link.Number(), Slot: s.slot.Index(), Generation: s.slot.Generation(),
		Number: s.number,
		State:  inStateNames[s.state], Window: uint64(s.window), Received: s.received, Consumed: s.received - s.unread,
		Reported: s.reported, Records: s.records, Bytes: s.bytes,
		Buffered:  len(s.ready) - prefix*int(s.readyN) + len(s.assembly),
		StopAsked: s.stopAsked, heads: s.heads,
		Minted: at(s.minted), First: at(s.firstData), Last: at(s.lastData), Ended: at(s.endedAt),
	}
	if s.end != nil {
		end := *s.end
		i.End = &end
	}
	for _, c := range s.lane.lane().Connections() {
		if c.To != 0 && c.To < s.minted || s.endedAt != 0 && c.From > s.endedAt {
			continue
		}
		l := LaneStay{Plane: c.Plane, Lane: s.lane.index, Serial: c.Serial, Remote: c.Remote,
			From: at(max(c.From, s.minted)), To: at(c.To)}
		if s.endedAt != 0 && (c.To == 0 || c.To > s.endedAt) {
			l.To = at(s.endedAt)
		}
		i.Lanes = append(i.Lanes, l)
	}
	i.Moves = uint32(max(len(i.Lanes)-1, 0))
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
	return Progress{State: inStateNames[s.state], Records: s.records,
		First: s.link.time(s.firstData), Last: s.link.time(s.lastData)}
}

// time turns a node time into a point in time; 0 is none.
func (n *node) time(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return n.epoch.Add(time.Duration(at - 1))
}
