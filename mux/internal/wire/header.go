package wire

import "fmt"

// HeaderSize is the length of every record's header.
//
//	 0        1                 4                         8
//	| kind u8 |   length u24   | slot u32 = index u24 . generation u8 | body (length bytes)
const HeaderSize = 8

// Limits of the protocol, in bytes.
const (
	// MaxData is the most that a DATA or DATA_MORE record may be, header included.
	MaxData = 64 << 10
	// MaxEnd is the most that an END body may be.
	MaxEnd = 20 << 10
	// MaxEndText and MaxEndTrailer bound the parts of an END.
	MaxEndText    = 1 << 10
	MaxEndTrailer = 16 << 10
	// MaxControl bounds every other body.
	MaxControl = 2 << 10
	// MaxLength is what the length field can say; only skipped kinds may come near it.
	MaxLength = 1<<24 - 1
	// MaxIndex is the highest slot index.
	MaxIndex = 1<<24 - 1
)

// Kind is the first byte of a record.
type Kind uint8

// Kinds of records and who may send them.
const (
	// Of the connection: not counted, never sent again. Both sides send them.
	Hello  Kind = 0x01 // first
	Ping   Kind = 0x02
	Pong   Kind = 0x03
	GoAway Kind = 0x04
	Ack    Kind = 0x05

	// Of the lane: counted, sent again when a connection has died.
	Open     Kind = 0x10 // worker
	Data     Kind = 0x11 // worker
	DataMore Kind = 0x12 // worker: a fragment, more follow
	End      Kind = 0x13 // worker
	Claim    Kind = 0x14 // worker, of no stream: asks for the terms of open terms

	Consumed Kind = 0x20 // frontend
	Stop     Kind = 0x21 // frontend
	Kill     Kind = 0x22 // frontend
	Grant    Kind = 0x23 // frontend, of no stream: answers a CLAIM
)

// Skipped says whether a receiver skips records of this kind unread, so that later versions can add hints.
func (k Kind) Skipped() bool { return k >= 0xC0 }

// Counted says whether records of this kind are part of the lane's byte string.
func (k Kind) Counted() bool { return k >= Open && k < 0xC0 || k >= 0xE0 }

// OfConnection says whether the kind is one that both sides send and that dies with its connection.
func (k Kind) OfConnection() bool { return k >= Hello && k <= Ack }

// ofNoStream says whether records of this kind have slot 0.
func (k Kind) ofNoStream() bool { return k.OfConnection() || k == Claim || k == Grant }

// FromWorker and FromFrontend say who may send the kind.
func (k Kind) FromWorker() bool   { return k.OfConnection() || k >= Open && k <= Claim }
func (k Kind) FromFrontend() bool { return k.OfConnection() || k >= Consumed && k <= Grant }

// kindNames are the kinds there are. Every header is looked up here, so it is no map.
var kindNames = [...]string{
	Hello: "HELLO", Ping: "PING", Pong: "PONG", GoAway: "GOAWAY", Ack: "ACK", Open: "OPEN", Data: "DATA",
	DataMore: "DATA_MORE", End: "END",
	Consumed: "CONSUMED", Stop: "STOP", Kill: "KILL", Claim: "CLAIM", Grant: "GRANT",
}

func (k Kind) known() bool { return int(k) < len(kindNames) && kindNames[k] != "" }

func (k Kind) String() string {
	if k.known() {
		return kindNames[k]
	}
	return fmt.Sprintf("kind 0x%02x", uint8(k))
}

// maxBody is the longest body that a kind may have.
func (k Kind) maxBody() int {
	switch {
	case k == Data || k == DataMore:
		return MaxData - HeaderSize
	case k == End:
		return MaxEnd
	case k.Skipped():
		return MaxLength
	}
	return MaxControl
}

// Slot names a stream on its link: index u24 . generation u8. The zero Slot is the lane itself.
type Slot uint32

// MakeSlot joins an index (1..MaxIndex) and a generation.
func MakeSlot(index uint32, generation uint8) Slot { return Slot(index<<8 | uint32(generation)) }

// Index is the slot's place in the link's table.
func (s Slot) Index() uint32 { return uint32(s) >> 8 }

// Generation counts the uses of an index; it only catches mistakes, the number of a stream orders uses.
func (s Slot) Generation() uint8 { return uint8(s) }

// Header is the decoded head of a record.
type Header struct {
	Kind   Kind
	Length int // of the body
	Slot   Slot
}

// ParseHeader decodes the header at the start of b, which must have HeaderSize bytes. It checks nothing.
func ParseHeader(b []byte) Header {
	_ = b[7]
	return Header{
		Kind:   Kind(b[0]),
		Length: int(b[1])<<16 | int(b[2])<<8 | int(b[3]),
		Slot:   Slot(uint32(b[4])<<24 | uint32(b[5])<<16 | uint32(b[6])<<8 | uint32(b[7])),
	}
}

// PutHeader writes a header to the start of b, which must have room for HeaderSize bytes.
func PutHeader(b []byte, k Kind, length int, s Slot) {
	_ = b[7]
	b[0] = byte(k)
	b[1], b[2], b[3] = byte(length>>16), byte(length>>8), byte(length)
	b[4], b[5], b[6], b[7] = byte(s>>24), byte(s>>16), byte(s>>8), byte(s)
}

// AppendHeader appends a header to b.
func AppendHeader(b []byte, k Kind, length int, s Slot) []byte {
	return append(b, byte(k), byte(length>>16), byte(length>>8), byte(length),
		byte(s>>24), byte(s>>16), byte(s>>8), byte(s))
}

// Check says whether a header may be sent by a worker (or by a frontend): known kind, right direction, length and slot
// within bounds. The length is checked before anything is allocated or waited for.
func (h Header) Check(fromWorker bool) error {
	if h.Kind.Skipped() {
		return nil
	}
	if !h.Kind.known() {
		return &Error{Kind: h.Kind, Slot: h.Slot, Reason: "is not a kind of this version"}
	}
	if fromWorker && !h.Kind.FromWorker() || !fromWorker && !h.Kind.FromFrontend() {
		return &Error{Kind: h.Kind, Slot: h.Slot, Reason: "came from the wrong side"}
	}
	if most := h.Kind.maxBody(); h.Length > most {
		return &Error{h.Kind, h.Slot, fmt.Sprintf("has %d bytes, at most %d are allowed", h.Length, most)}
	}
	if h.Kind.ofNoStream() != (h.Slot == 0) || h.Slot != 0 && h.Slot.Index() == 0 {
		return &Error{Kind: h.Kind, Slot: h.Slot, Reason: "has a slot that its kind cannot have"}
	}
	return nil
}

// Error says what is wrong with a record.
type Error struct {
	Kind   Kind
	Slot   Slot
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("wire: %s of slot %d.%d %s", e.Kind, e.Slot.Index(), e.Slot.Generation(), e.Reason)
}
