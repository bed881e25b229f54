package wire

import (
	"encoding/binary"
	"fmt"
)

var be = binary.BigEndian

func short(k Kind, s Slot, have, need int) error {
	return &Error{Kind: k, Slot: s, Reason: fmt.Sprintf("has %d bytes, expected %d", have, need)}
}

// Sizes of the fixed bodies.
const (
	PingSize     = 16
	AckSize      = 8
	OpenSize     = 16
	ConsumedSize = 16
	StopSize     = 8
	KillSize     = 9
	endFixed     = 30
)

// AppendPing appends a PING or PONG: value u64, received u64.
func AppendPing(b []byte, k Kind, value, received uint64) []byte {
	return appendPair(b, k, 0, value, received)
}

// ParsePing decodes the body of a PING or PONG.
func ParsePing(k Kind, body []byte) (value, received uint64, err error) { return parsePair(k, 0, body) }

// AppendAck appends an ACK.
func AppendAck(b []byte, received uint64) []byte {
	return be.AppendUint64(AppendHeader(b, Ack, AckSize, 0), received)
}

// ParseAck decodes the body of an ACK.
func ParseAck(body []byte) (received uint64, err error) { return parseNumber(Ack, 0, body) }

// AppendOpen appends an OPEN.
func AppendOpen(b []byte, s Slot, number, key uint64) []byte {
	return appendPair(b, Open, s, number, key)
}

// ParseOpen decodes an OPEN's body.
func ParseOpen(s Slot, body []byte) (number, key uint64, err error) { return parsePair(Open, s, body) }

// AppendConsumed appends a CONSUMED: how many bytes of the stream the application has taken, in all.
func AppendConsumed(b []byte, s Slot, number, bytes uint64) []byte {
	return appendPair(b, Consumed, s, number, bytes)
}

// ParseConsumed decodes a CONSUMED's body.
func ParseConsumed(s Slot, body []byte) (number, bytes uint64, err error) {
	return parsePair(Consumed, s, body)
}

// AppendStop appends a STOP.
func AppendStop(b []byte, s Slot, number uint64) []byte {
	return be.AppendUint64(AppendHeader(b, Stop, StopSize, s), number)
}

// ParseStop decodes a STOP's body.
func ParseStop(s Slot, body []byte) (number uint64, err error) { return parseNumber(Stop, s, body) }

// AppendKill appends a KILL. why is the end that the consumer has: killed, or deadline, refused, ... for the worker's
// counts.
func AppendKill(b []byte, s Slot, number uint64, why EndType) []byte {
	return append(be.AppendUint64(AppendHeader(b, Kill, KillSize, s), number), byte(why))
}

// ParseKill decodes a KILL's body. A reason that is no end of this version is EndKilled.
func ParseKill(s Slot, body []byte) (number uint64, why EndType, err error) {
	if len(body) != KillSize {
		return 0, 0, short(Kill, s, len(body), KillSize)
	}
	if why = EndType(body[8]); why <= EndComplete || why >= endTypes {
		why = EndKilled
	}
	return be.Uint64(body), why, nil
}

func appendPair(b []byte, k Kind, s Slot, x, y uint64) []byte {
	return be.AppendUint64(be.AppendUint64(AppendHeader(b, k, 16, s), x), y)
}

func parsePair(k Kind, s Slot, body []byte) (x, y uint64, err error) {
	if len(body) != 16 {
		return 0, 0, short(k, s, len(body), 16)
	}
	return be.Uint64(body), be.Uint64(body[8:]), nil
}

func parseNumber(k Kind, s Slot, body []byte) (uint64, error) {
	if len(body) != 8 {
		return 0, short(k, s, len(body), 8)
	}
	return be.Uint64(body), nil
}

// EndType says how a stream ended.
type EndType uint8

// Types of ends.
const (
	EndComplete EndType = 1 + iota
	EndFailed
	EndStopped
	EndKilled
	EndRefused
	EndDeadline
	EndLost
	EndProtocol
	endTypes
)

var endNames = [endTypes]string{
	"", "complete", "failed", "stopped", "killed", "refused", "deadline", "lost", "protocol",
}

func (t EndType) String() string {
	if t > 0 && t < endTypes {
		return endNames[t]
	}
	return fmt.Sprintf("end type %d", uint8(t))
}

// EndTypes lists every type of end, for tables and metrics.
func EndTypes() []EndType {
	all := make([]EndType, 0, endTypes-1)
	for t := EndComplete; t < endTypes; t++ {
		all = append(all, t)
	}
	return all
}

// EndBody is the last record of a stream.
//
//	number u64 | type u8 | flags u8 | code u16 | records u64 | bytes u64 | text length u16 | text | trailer
type EndBody struct {
	Number    uint64
	Type      EndType
	Retryable bool   // flag 0x01: another attempt may succeed
	Code      uint16 // why, for failed and refused
	Records   uint64 // records in the stream
	Bytes     uint64 // their payload bytes
	Text      string
	Trailer   []byte // opaque; valid as long as the decoded buffer
}

// EndSize is the size of the body.
func EndSize(e *EndBody) int {
	return endFixed + min(len(e.Text), MaxEndText) + min(len(e.Trailer), MaxEndTrailer)
}

// Valid says whether the type is one of this version.
func (t EndType) Valid() bool { return t > 0 && t < endTypes }

// AppendEndBody appends an END's body. Text and trailer that are too long are an error of the caller and cut here.
func AppendEndBody(b []byte, e *EndBody) []byte {
	text, trailer := e.Text[:min(len(e.Text), MaxEndText)], e.Trailer[:min(len(e.Trailer), MaxEndTrailer)]
	b = be.AppendUint64(b, e.Number)
	var flags byte
	if e.Retryable {
		flags |= 1
	}
	b = append(b, byte(e.Type), flags)
	b = be.AppendUint16(b, e.Code)
	b = be.AppendUint64(b, e.Records)
	b = be.AppendUint64(b, e.Bytes)
	b = be.AppendUint16(b, uint16(len(text)))
	b = append(b, text...)
	return append(b, trailer...)
}

// AppendEnd appends an END.
func AppendEnd(b []byte, s Slot, e *EndBody) []byte {
	return AppendEndBody(AppendHeader(b, End, EndSize(e), s), e)
}

// ParseEnd decodes an END's body. The trailer points into body.
func ParseEnd(s Slot, body []byte) (EndBody, error) {
	if len(body) < endFixed {
		return EndBody{}, short(End, s, len(body), endFixed)
	}
	e := EndBody{
		Number: be.Uint64(body), Type: EndType(body[8]), Retryable: body[9]&1 != 0, Code: be.Uint16(body[10:]),
		Records: be.Uint64(body[12:]), Bytes: be.Uint64(body[20:]),
	}
	n := int(be.Uint16(body[28:]))
	rest := body[endFixed:]
	switch {
	case e.Type == 0 || e.Type >= endTypes:
		return e, &Error{Kind: End, Slot: s, Reason: fmt.Sprintf("has the unknown type %d", body[8])}
	case n > MaxEndText || n > len(rest):
		return e, &Error{End, s, fmt.Sprintf("says %d bytes of text, %d are there and %d allowed", n, len(rest),
			MaxEndText)}
	case len(rest)-n > MaxEndTrailer:
		return e, &Error{End, s, fmt.Sprintf("has a trailer of %d bytes, %d are allowed", len(rest)-n, MaxEndTrailer)}
	}
	e.Text, e.Trailer = string(rest[:n]), rest[n:]
	return e, nil
}

// GoAwayCode says why a lane or node goes away.
type GoAwayCode uint16

// Codes of GOAWAY. Draining concerns new streams only; every other code is the last record of its lane.
const (
	AwayDraining    GoAwayCode = 0
	AwayVersion     GoAwayCode = 1 // versions do not meet
	AwayUnknownLink GoAwayCode = 2 // the link that the HELLO names is not known here
	AwayLimit       GoAwayCode = 3 // too many links, lanes or handshakes
	AwayProtocol    GoAwayCode = 4 // a record was malformed or illegal; the link has ended
	AwayIdentity    GoAwayCode = 5 // HELLO claims another node than the plane has proven, or than was dialled
	AwayClosing     GoAwayCode = 6 // the node closes
)

var awayNames = [...]string{"draining", "version", "unknown link", "limit", "protocol", "identity", "closing"}

func (c GoAwayCode) String() string {
	if int(c) < len(awayNames) {
		return awayNames[c]
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// AppendGoAway appends a GOAWAY; text is cut at 1 KiB.
func AppendGoAway(b []byte, code GoAwayCode, text string) []byte {
	if len(text) > MaxEndText {
		text = text[:MaxEndText]
	}
	b = AppendHeader(b, GoAway, 2+len(text), 0)
	b = be.AppendUint16(b, uint16(code))
	return append(b, text...)
}

// ParseGoAway decodes a GOAWAY's body.
func ParseGoAway(body []byte) (GoAwayCode, string, error) {
	if len(body) < 2 {
		return 0, "", short(GoAway, 0, len(body), 2)
	}
	return GoAwayCode(be.Uint16(body)), string(body[2:]), nil
}
