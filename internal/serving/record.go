package serving

import (
	"encoding/binary"
	"fmt"
)

// Kind is the type of a record, its first byte.
type Kind uint8

// Kinds of records.
const (
	KindHead  Kind = 1 // status and headers, and the first event or piece behind them
	KindEvent Kind = 2 // a server-sent event as the engine wrote it, all its lines without the blank one
	KindDelta Kind = 3 // an event, as its difference from the one before
	KindBody  Kind = 4 // a piece of what is no event stream
	KindLast  Kind = 5 // an event after which the frontend adds none: the engine's last, or one that says it failed
)

// MaxReference is the longest event that the next one may be told from. A longer one goes whole and leaves none.
const MaxReference = 4 << 10

// Head is the beginning of an answer.
type Head struct {
	Status  int
	Headers []Header
}

// appendHead appends a head without what goes behind it. Check it first.
func appendHead(dst []byte, h *Head) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Status))
	return appendHeaders(dst, h.Headers)
}

func (h *Head) check() error {
	if h.Status < 200 || h.Status > 599 {
		return fmt.Errorf("serving: status %d, expected 200 to 599", h.Status)
	}
	return checkHeaders(h.Headers)
}

func (r *reader) head() Head {
	h := Head{Status: r.u16()}
	h.Headers = r.headers()
	if h.check() != nil {
		r.bad = true
	}
	return h
}

// Encoder makes records of events, each from the one before. Off, it sends every event whole; a decoder reads both.
type Encoder struct {
	Off bool
	ref []byte
}

// Append appends the record of an event to dst. The event becomes the reference only when Sent is called with it: a
// record that the window did not take has not been sent.
func (e *Encoder) Append(dst, event []byte) []byte {
	if len(e.ref) > 0 {
		p := commonPrefix(e.ref, event)
		s := commonSuffix(e.ref[p:], event[p:])
		n := len(dst)
		dst = append(dst, byte(KindDelta))
		dst = binary.AppendUvarint(dst, uint64(p))
		dst = binary.AppendUvarint(dst, uint64(s))
		if len(dst)-n+len(event)-p-s <= len(event) {
			return append(dst, event[p:len(event)-s]...)
		}
		dst = dst[:n]
	}
	return append(append(dst, byte(KindEvent)), event...)
}

// Sent makes the event the one that the next is told from.
func (e *Encoder) Sent(event []byte) {
	if !e.Off {
		e.ref = reference(e.ref, event)
	}
}

// reference replaces ref by the event where that is short enough.
func reference(ref, event []byte) []byte {
	if len(event) > MaxReference {
		return ref[:0]
	}
	return append(ref[:0], event...)
}

// commonPrefix and commonSuffix compare eight bytes at a time: an event has some hundred, and each token has one.
func commonPrefix(a, b []byte) (n int) {
	limit := min(len(a), len(b))
	for n+8 <= limit && binary.LittleEndian.Uint64(a[n:]) == binary.LittleEndian.Uint64(b[n:]) {
		n += 8
	}
	for n < limit && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b []byte) (n int) {
	limit := min(len(a), len(b))
	for n+8 <= limit &&
		binary.LittleEndian.Uint64(a[len(a)-n-8:]) == binary.LittleEndian.Uint64(b[len(b)-n-8:]) {
		n += 8
	}
	for n < limit && a[len(a)-n-1] == b[len(b)-n-1] {
		n++
	}
	return n
}

// Decoder reads the records of one answer, in order. It keeps one event, and nothing else.
type Decoder struct {
	ref   []byte
	begun bool
	ended bool
	body  bool // pieces came
	event bool // events came
}

// Piece is what a record held, besides the bytes that Append appended.
type Piece struct {
	Kind Kind  // KindEvent, KindLast or KindBody; KindHead where nothing stood behind the head
	Head *Head // the answer's head, with its first record only
}

// Begun says whether the head has come.
func (d *Decoder) Begun() bool { return d.begun }

// Ended says whether the engine's last event has come: nothing may be added behind it.
func (d *Decoder) Ended() bool { return d.ended }

// Append reads a record and appends the event (without its blank line) or the piece of the body that it holds to dst.
// It allocates with the head only, and as dst grows. An error, always ErrMalformed, means that the answer can go on no
// further; dst is as it was.
func (d *Decoder) Append(dst, rec []byte) ([]byte, Piece, error) {
	var piece Piece
	if !d.begun {
		in := reader{b: rec}
		kind := Kind(in.u8())
		h := in.head()
		if in.bad || kind != KindHead {
			return dst, piece, fmt.Errorf("%w record: the first is no head", ErrMalformed)
		}
		piece.Head, rec = &h, in.b
		if len(rec) == 0 {
			d.begun = true
			piece.Kind = KindHead
			return dst, piece, nil
		}
	}
	n := len(dst)
	dst, kind, err := d.content(dst, rec)
	if err != nil {
		return dst[:n], Piece{}, err
	}
	d.begun = true
	piece.Kind = kind
	return dst, piece, nil
}

// content reads what is no head.
func (d *Decoder) content(dst, rec []byte) ([]byte, Kind, error) {
	if len(rec) == 0 {
		return dst, 0, fmt.Errorf("%w record: it is empty", ErrMalformed)
	}
	n, kind := len(dst), Kind(rec[0])
	rec = rec[1:]
	if kind == KindBody && d.event || kind != KindBody && d.body {
		return dst, 0, fmt.Errorf("%w record: events and pieces of a body in one answer", ErrMalformed)
	}
	switch kind {
	case KindBody:
		d.body = true
		return append(dst, rec...), kind, nil
	case KindLast:
		d.event, d.ended = true, true
		return append(dst, rec...), kind, nil
	case KindEvent:
		dst = append(dst, rec...)
	case KindDelta:
		p, a := binary.Uvarint(rec)
		if a <= 0 {
			return dst, 0, fmt.Errorf("%w delta", ErrMalformed)
		}
		s, b := binary.Uvarint(rec[a:])
		if ref := uint64(len(d.ref)); b <= 0 || p > ref || s > ref-p {
			return dst, 0, fmt.Errorf("%w delta: it takes more than the event before has", ErrMalformed)
		}
		dst = append(append(dst, d.ref[:p]...), rec[a+b:]...)
		dst = append(dst, d.ref[len(d.ref)-int(s):]...)
	default:
		return dst, 0, fmt.Errorf("%w record: kind %d", ErrMalformed, kind)
	}
	if d.ended {
		return dst, 0, fmt.Errorf("%w record: an event behind the last", ErrMalformed)
	}
	d.event = true
	d.ref = reference(d.ref, dst[n:])
	return dst, KindEvent, nil
}
