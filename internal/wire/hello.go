package wire

import "fmt"

// Versions that this code speaks. Version N talks to N-1 once there is one.
const (
	MinVersion = 1
	MaxVersion = 1
)

// Magic opens every HELLO: "LANE".
const Magic = 0x4C414E45

// HelloSize is the length of a HELLO's body. The layout is frozen for all versions; a longer body is allowed and its
// tail ignored.
const HelloSize = 96

// HelloBody is the first record in both directions of a lane.
//
//	magic u32 | lowest u16 | highest u16 | features u64 | node 16 | link u64 | lane u16 | 0 u16 | max streams u32 |
//	serial u64 | own secret 16 | peer's secret 16 | 0 x 8 (zero on sending, ignored on receipt)
type HelloBody struct {
	Lowest, Highest uint16
	Features        uint64
	Node            [16]byte
	Link            uint64 // number of the link, chosen by the frontend
	Lane            uint16
	MaxStreams      uint32 // streams that the sender of this HELLO allows on the link
	Serial          uint64 // of the connection; new for each one, chosen by the frontend
	OwnSecret       [16]byte
	PeerSecret      [16]byte // zero on a link's first lane
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
	b = be.AppendUint16(b, 0)
	b = be.AppendUint32(b, h.MaxStreams)
	b = be.AppendUint64(b, h.Serial)
	b = append(b, h.OwnSecret[:]...)
	b = append(b, h.PeerSecret[:]...)
	return be.AppendUint64(b, 0)
}

// ParseHello decodes a HELLO's body.
func ParseHello(body []byte) (HelloBody, error) {
	if len(body) < HelloSize {
		return HelloBody{}, short(Hello, 0, len(body), HelloSize)
	}
	if m := be.Uint32(body); m != Magic {
		return HelloBody{}, &Error{Kind: Hello, Reason: fmt.Sprintf("starts with 0x%08x, expected 0x%08x: the peer does not speak this protocol", m, uint32(Magic))}
	}
	h := HelloBody{
		Lowest: be.Uint16(body[4:]), Highest: be.Uint16(body[6:]), Features: be.Uint64(body[8:]), Node: [16]byte(body[16:32]),
		Link: be.Uint64(body[32:]), Lane: be.Uint16(body[40:]), MaxStreams: be.Uint32(body[44:]), Serial: be.Uint64(body[48:]),
		OwnSecret: [16]byte(body[56:72]), PeerSecret: [16]byte(body[72:88]),
	}
	if h.Lowest == 0 || h.Lowest > h.Highest {
		return h, &Error{Kind: Hello, Reason: fmt.Sprintf("offers versions %d to %d, which is no range", h.Lowest, h.Highest)}
	}
	return h, nil
}

// MeetVersion is the highest version that both speak, or an error that names both ranges.
func MeetVersion(lowest, highest uint16) (uint16, error) {
	v := min(highest, MaxVersion)
	if v < MinVersion || v < lowest {
		return 0, &Error{Kind: Hello, Reason: fmt.Sprintf("offers versions %d to %d, this side speaks %d to %d", lowest, highest, MinVersion, MaxVersion)}
	}
	return v, nil
}
