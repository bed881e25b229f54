package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"time"
)

// TermsVersion is the version of the terms' layout.
const TermsVersion = 1

// TermsSize is the length of version 1. A longer encoding is allowed and its tail ignored.
const TermsSize = 80

// keyAt is where the key stands; it covers what is before.
const keyAt = 72

// Terms tell a worker where a response goes. The frontend mints them and they travel inside the request.
//
//	version u16 | 0 u16 | frontend 16 | worker 16 | link u64 | slot u32 | number u64 | lane u16 | 0 u16 | window u32 |
//	time left u64 (microseconds, 0 = no deadline) | key u64
type Terms struct {
	Frontend [16]byte
	Worker   [16]byte
	Link     uint64
	Slot     Slot
	Number   uint64
	Lane     uint16 // the stream's, for its life
	Window   uint32
	TimeLeft time.Duration // not a time of day: clocks differ
	Key      uint64        // set by AppendTerms
}

// Key makes and checks the keys of a link's terms: who has both secrets can mint.
type Key struct{ mac hash.Hash }

// NewKey makes the key of a link. It is not safe for concurrent use.
func NewKey(frontend, worker [16]byte) *Key {
	return &Key{hmac.New(sha256.New, append(frontend[:], worker[:]...))}
}

// of is the key of an encoding.
func (k *Key) of(b []byte) uint64 {
	k.mac.Reset()
	_, _ = k.mac.Write(b[:keyAt])
	var sum [sha256.Size]byte
	return be.Uint64(k.mac.Sum(sum[:0]))
}

// Holds says whether the terms were minted by who has the link's secrets. b are terms that ParseTerms has taken.
func (k *Key) Holds(b []byte) bool {
	return hmac.Equal(be.AppendUint64(nil, k.of(b)), b[keyAt:TermsSize])
}

// AppendTerms appends the encoding and sets the terms' key.
func AppendTerms(b []byte, t *Terms, k *Key) []byte {
	at := len(b)
	b = be.AppendUint16(b, TermsVersion)
	b = be.AppendUint16(b, termsBound)
	b = append(b, t.Frontend[:]...)
	b = append(b, t.Worker[:]...)
	b = be.AppendUint64(b, t.Link)
	b = be.AppendUint32(b, uint32(t.Slot))
	b = be.AppendUint64(b, t.Number)
	b = be.AppendUint16(b, t.Lane)
	b = be.AppendUint16(b, 0)
	b = be.AppendUint32(b, t.Window)
	b = be.AppendUint64(b, uint64(max(t.TimeLeft, 0)/time.Microsecond))
	t.Key = k.of(b[at:])
	return be.AppendUint64(b, t.Key)
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
		Number: be.Uint64(b[48:]), Lane: be.Uint16(b[56:]), Window: be.Uint32(b[60:]), TimeLeft: timeLeft(b[64:]),
		Key: be.Uint64(b[keyAt:]),
	}
	switch {
	case t.Slot.Index() == 0:
		return t, fmt.Errorf("wire: terms name slot 0, which no stream has")
	case t.Number == 0 || t.Number > MaxNumber:
		return t, fmt.Errorf("wire: terms have the stream number %d, allowed are 1 to %d", t.Number, uint64(MaxNumber))
	case t.Window < MinWindow || t.Window > MaxWindow:
		return t, fmt.Errorf("wire: terms give a window of %d bytes, allowed are %d to %d", t.Window, MinWindow,
			MaxWindow)
	}
	return t, nil
}

// MaxNumber is the highest number of a stream: a worker keeps two bits beside the last one of each index.
const MaxNumber = 1<<62 - 1

// Range of a stream's window in bytes.
const (
	MinWindow = 4 << 10
	MaxWindow = 16 << 20
)

// MaxRecord is the most that a DATA or DATA_MORE may be on a stream with this window, header included.
func MaxRecord(window int) int { return min(MaxData, window/2) }
