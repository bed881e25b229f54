package serving

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed is every record, request or trailer whose bytes do not hold.
var ErrMalformed = errors.New("serving: malformed")

// reader takes fields off a byte string. A field that is not there makes it bad and empty, so that the caller checks
// once; nothing is allocated from a count that was read.
type reader struct {
	b   []byte
	bad bool
}

// take returns the next n bytes, which stay those of the input.
func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.b, r.bad = nil, true
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) u8() int {
	if p := r.take(1); p != nil {
		return int(p[0])
	}
	return 0
}

func (r *reader) u16() int {
	if p := r.take(2); p != nil {
		return int(binary.BigEndian.Uint16(p))
	}
	return 0
}

func (r *reader) u32() int {
	if p := r.take(4); p != nil {
		return int(binary.BigEndian.Uint32(p))
	}
	return 0
}

func (r *reader) u64() uint64 {
	if p := r.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// short and long are strings behind their length, in one byte and in two.
func (r *reader) short() string { return string(r.take(r.u8())) }
func (r *reader) long() string  { return string(r.take(r.u16())) }

func appendShort(dst []byte, s string) []byte { return append(append(dst, byte(len(s))), s...) }

func appendLong(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}
