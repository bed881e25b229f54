package refplane

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/laneway-ai/laneway/transport"
)

// Kinds of frames.
const (
	// frontend: id is its number. Answered by the worker with the same. PerResponse: worker, id is the response's;
	// answered too
	kindHello = iota + 1
	kindData  // worker: a record
	kindEnd   // worker: complete, body is the trailer
	kindFail  // worker: failed, body is code u16, retryable u8, text
	kindStop  // frontend: finish the response
)

const (
	frameHead = 4 + 1 + 8
	// maxFrame bounds a frame's body.
	maxFrame = 1 << 20
)

func appendFrame(b []byte, kind byte, id uint64, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(frameHead-4+len(body)))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint64(b, id)
	return append(b, body...)
}

// reader cuts a connection's bytes into frames.
type reader struct {
	conn transport.Conn
	buf  []byte
	have int
}

func newReader(conn transport.Conn) *reader { return &reader{conn: conn, buf: make([]byte, 64<<10)} }

// read waits for bytes and calls f with each whole frame; bodies are valid in the call. n is how many bytes came.
func (r *reader) read(f func(kind byte, id uint64, body []byte) error) (n int, err error) {
	n, err = r.conn.Read(r.buf[r.have:])
	if err != nil {
		return n, err
	}
	r.have += n
	at := 0
	for r.have-at >= 4 {
		size := int(binary.BigEndian.Uint32(r.buf[at:]))
		if size < frameHead-4 || size > maxFrame+frameHead {
			return n, fmt.Errorf("refplane: a frame of %d bytes", size)
		}
		if r.have-at < 4+size {
			if 4+size > len(r.buf) {
				bigger := make([]byte, 4+size)
				r.have = copy(bigger, r.buf[at:r.have])
				r.buf, at = bigger, 0
			}
			break
		}
		frame := r.buf[at+4 : at+4+size]
		at += 4 + size
		if err := f(frame[0], binary.BigEndian.Uint64(frame[1:]), frame[9:]); err != nil {
			return n, err
		}
	}
	r.have = copy(r.buf, r.buf[at:r.have])
	return n, nil
}

// terms are what a request carries: mode u8, id u64, frontend u64, address of the frontend (PerResponse).
type terms struct {
	mode     Mode
	id       uint64
	frontend uint64
	address  string
}

func (t terms) encode() []byte {
	b := []byte{modeByte(t.mode)}
	b = binary.BigEndian.AppendUint64(b, t.id)
	b = binary.BigEndian.AppendUint64(b, t.frontend)
	return append(b, t.address...)
}

func decodeTerms(b []byte) (terms, error) {
	if len(b) < 17 {
		return terms{}, fmt.Errorf("refplane: terms of %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	}
	for _, m := range Modes() {
		if modeByte(m) == b[0] {
			return terms{mode: m, id: binary.BigEndian.Uint64(b[1:]), frontend: binary.BigEndian.Uint64(b[9:]),
				address: string(b[17:])}, nil
		}
	}
	return terms{}, fmt.Errorf("refplane: terms of mode %d", b[0])
}

func modeByte(m Mode) byte {
	for i, have := range Modes() {
		if have == m {
			return byte(i + 1)
		}
	}
	return 0
}
