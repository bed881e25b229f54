package wire

import (
	"fmt"
	"math"
	"time"
)

// Versions that this code speaks. Version N talks to N-1 once there is one.
const (
	MinVersion = 1
	MaxVersion = 1
)

// Magic opens every HELLO: "LANE".
const Magic = 0x4C414E45

// HelloSize is the length of a HELLO's body. The layout is frozen for all versions; a longer body is allowed and its
// tail ignored.
const HelloSize = 128

// Ranges of what HELLO carries. MaxLanes is refused above; the others are clamped where they are read.
const (
	MaxLanes   = 16
	MinLog     = 256 << 10
	MaxLog     = 64 << 20
	MinPing    = 100 * time.Millisecond
	MaxPing    = time.Hour
	MinSilence = 3 // PINGs
	MaxResume  = 90 * time.Second
)

// HelloBody is the first record in both directions of a connection.
//
//	magic u32 | lowest u16 | highest u16 | features u64 | node 16 | link u64 | lane u16 | lanes u16 |
//	max streams u32 | serial u64 | received u64 | log u32 | resume u32 | idle PING u32 | idle silence u32 |
//	active PING u32 | active silence u32 | own secret 16 | peer's secret 16 |
//	0 x 8 (zero on sending, ignored on receipt)
//
// Times are in milliseconds.
type HelloBody struct {
	Lowest, Highest uint16
	Features        uint64
	Node            [16]byte
	Link            uint64 // number of the link, chosen by the frontend
	Lane            uint16
	Lanes           uint16 // how many the link has, chosen by the frontend
	MaxStreams      uint32 // streams that the sender of this HELLO allows on the link
	Serial          uint64 // of the connection; only grows, chosen by the frontend
	Received        uint64 // bytes of the peer's string that this side has handled
	Log             int    // bytes that this side keeps for sending again, at most
	Resume          time.Duration
	Pings           Pings
	OwnSecret       [16]byte
	PeerSecret      [16]byte // zero on a link's first connection
}

// Pings are the rules by which a silent peer is found. The shorter of what both ends say holds.
type Pings struct {
	Idle, IdleSilence     time.Duration // of a lane without open streams
	Active, ActiveSilence time.Duration // of a lane with some
}

// Agree is what two ends have agreed on, within the protocol's bounds.
func (p Pings) Agree(o Pings) Pings {
	ping := func(a, b time.Duration) time.Duration { return min(max(min(a, b), MinPing), MaxPing) }
	m := Pings{Idle: ping(p.Idle, o.Idle), Active: ping(p.Active, o.Active)}
	m.IdleSilence = max(min(p.IdleSilence, o.IdleSilence), MinSilence*m.Idle)
	m.ActiveSilence = max(min(p.ActiveSilence, o.ActiveSilence), MinSilence*m.Active)
	return m
}

// AppendHello appends a HELLO.
func AppendHello(b []byte, h *HelloBody) []byte {
	b = AppendHeader(b, Hello, HelloSize, 0)
	b = be.AppendUint32(b, Magic)
	b = be.AppendUint16(b, h.Lowest)
	b = be.AppendUint16(b, h.Highest)
	b = be.AppendUint64(b, h.Features)
	b = append(b, h.Node[:]...)
	b = be.AppendUint64(b, h.Link)
	b = be.AppendUint16(b, h.Lane)
	b = be.AppendUint16(b, h.Lanes)
	b = be.AppendUint32(b, h.MaxStreams)
	b = be.AppendUint64(b, h.Serial)
	b = be.AppendUint64(b, h.Received)
	b = be.AppendUint32(b, uint32(min(max(h.Log, 0), math.MaxUint32)))
	p := &h.Pings
	for _, d := range [...]time.Duration{h.Resume, p.Idle, p.IdleSilence, p.Active, p.ActiveSilence} {
		b = be.AppendUint32(b, uint32(min(max(d, 0)/time.Millisecond, math.MaxUint32)))
	}
	b = append(b, h.OwnSecret[:]...)
	b = append(b, h.PeerSecret[:]...)
	return be.AppendUint64(b, 0)
}

// ParseHello decodes a HELLO's body. Log and Resume are clamped to their ranges; Pings are when both ends' meet.
func ParseHello(body []byte) (HelloBody, error) {
	if len(body) < HelloSize {
		return HelloBody{}, short(Hello, 0, len(body), HelloSize)
	}
	if m := be.Uint32(body); m != Magic {
		return HelloBody{}, &Error{Hello, 0, fmt.Sprintf("starts with 0x%08x, expected 0x%08x: the peer does not "+
			"speak this protocol", m, uint32(Magic))}
	}
	ms := func(at int) time.Duration { return time.Duration(be.Uint32(body[at:])) * time.Millisecond }
	h := HelloBody{
		Lowest: be.Uint16(body[4:]), Highest: be.Uint16(body[6:]), Features: be.Uint64(body[8:]),
		Node: [16]byte(body[16:32]), Link: be.Uint64(body[32:]), Lane: be.Uint16(body[40:]),
		Lanes:      be.Uint16(body[42:]),
		MaxStreams: be.Uint32(body[44:]), Serial: be.Uint64(body[48:]), Received: be.Uint64(body[56:]),
		Log: int(min(max(be.Uint32(body[64:]), MinLog), MaxLog)), Resume: min(ms(68), MaxResume),
		Pings:     Pings{Idle: ms(72), IdleSilence: ms(76), Active: ms(80), ActiveSilence: ms(84)},
		OwnSecret: [16]byte(body[88:104]), PeerSecret: [16]byte(body[104:120]),
	}
	switch {
	case h.Lowest == 0 || h.Lowest > h.Highest:
		return h, &Error{Hello, 0, fmt.Sprintf("offers versions %d to %d, which is no range", h.Lowest, h.Highest)}
	case h.Lanes < 1 || h.Lanes > MaxLanes || h.Lane >= h.Lanes:
		return h, &Error{Hello, 0, fmt.Sprintf("is of lane %d of %d; a link has 1 to %d", h.Lane, h.Lanes, MaxLanes)}
	}
	return h, nil
}

// MeetVersion is the highest version that both speak, or an error that names both ranges.
func MeetVersion(lowest, highest uint16) (uint16, error) {
	v := min(highest, MaxVersion)
	if v < MinVersion || v < lowest {
		return 0, &Error{Hello, 0, fmt.Sprintf("offers versions %d to %d, this side speaks %d to %d",
			lowest, highest, MinVersion, MaxVersion)}
	}
	return v, nil
}
