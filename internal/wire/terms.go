package wire

import (
	"fmt"
	"time"
)

// TermsVersion is the version of the terms' layout.
const TermsVersion = 1

// TermsSize is the length of version 1. A longer encoding is allowed and its tail ignored.
const TermsSize = 92

// Terms tell a worker where a response goes. The frontend mints them and they travel inside the request.
//
//	version u16 | 0 u16 | frontend 16 | worker 16 | link u64 | slot u32 | number u64 | key u64 | lane serial u64 |
//	window u32 | time left u64 (microseconds, 0 = no deadline) | 0 x 8
type Terms struct {
	Frontend [16]byte
	Worker   [16]byte
	Link     uint64
	Slot     Slot
	Number   uint64
	Key      uint64
	Serial   uint64 // of the lane that the frontend chose
	Window   uint32
	TimeLeft time.Duration // not a time of day: clocks differ
}

// AppendTerms appends the encoding.
func AppendTerms(b []byte, t *Terms) []byte {
	b = be.AppendUint16(b, TermsVersion)
	b = be.AppendUint16(b, termsBound)
	b = append(b, t.Frontend[:]...)
	b = append(b, t.Worker[:]...)
	b = be.AppendUint64(b, t.Link)
	b = be.AppendUint32(b, uint32(t.Slot))
	b = be.AppendUint64(b, t.Number)
	b = be.AppendUint64(b, t.Key)
	b = be.AppendUint64(b, t.Serial)
	b = be.AppendUint32(b, t.Window)
	b = be.AppendUint64(b, uint64(max(t.TimeLeft, 0)/time.Microsecond))
	return be.AppendUint64(b, 0)
}

// ErrTermsVersion is unwrapped from the error of ParseTerms for terms of a version that this code does not read.
var ErrTermsVersion = fmt.Errorf("wire: unsupported version of terms")

// ParseTerms decodes terms.
func ParseTerms(b []byte) (Terms, error) {
	if err := checkTerms(b, termsBound, TermsSize); err != nil {
		return Terms{}, err
	}
	t := Terms{
		Frontend: [16]byte(b[4:20]), Worker: [16]byte(b[20:36]), Link: be.Uint64(b[36:]), Slot: Slot(be.Uint32(b[44:])),
		Number: be.Uint64(b[48:]), Key: be.Uint64(b[56:]), Serial: be.Uint64(b[64:]), Window: be.Uint32(b[72:]),
		TimeLeft: timeLeft(b[76:]),
	}
	switch {
	case t.Slot.Index() == 0:
		return t, fmt.Errorf("wire: terms name slot 0, which no stream has")
	case t.Number == 0:
		return t, fmt.Errorf("wire: terms have no stream number")
	case t.Window < MinWindow || t.Window > MaxWindow:
		return t, fmt.Errorf("wire: terms give a window of %d bytes, allowed are %d to %d", t.Window, MinWindow, MaxWindow)
	}
	return t, nil
}

// Range of a stream's window in bytes.
const (
	MinWindow = 4 << 10
	MaxWindow = 16 << 20
)

// MaxRecord is the most that a DATA or DATA_MORE may be on a stream with this window, header included.
func MaxRecord(window int) int { return min(MaxData, window/2) }
