package base

import "io"

// Bounds of a Joiner's buffer: it begins small, so that a lane that says little keeps little.
const (
	joinLeast = 4 << 10
	joinMost  = 64 << 10
)

// Joiner writes segments to what takes one slice at a time. It joins them in a buffer that it keeps.
type Joiner struct{ buf []byte }

// Write writes the segments in pieces of joinMost; the last one is what is left. A piece that lies in one segment is
// not copied.
func (j *Joiner) Write(w io.Writer, bufs [][]byte) (n int, err error) {
	left := 0 // not written yet
	for _, b := range bufs {
		left += len(b)
	}
	filled := 0 // of it, what lies in j.buf
	for _, b := range bufs {
		for len(b) > 0 {
			size := min(left, joinMost)
			var piece []byte
			if filled == 0 && len(b) >= size {
				piece, b = b[:size], b[size:]
			} else {
				j.grow(size)
				k := copy(j.buf[filled:size], b)
				b = b[k:]
				if filled += k; filled < size {
					continue
				}
				piece, filled = j.buf[:size], 0
			}
			k, err := w.Write(piece)
			n += k
			if err != nil {
				return n, err
			}
			left -= size
		}
	}
	return n, nil
}

// grow makes room for a piece. Nothing lies in the buffer when it is too small: a write's first piece is its largest.
func (j *Joiner) grow(size int) {
	if size <= len(j.buf) {
		return
	}
	n := joinLeast
	for n < size {
		n *= 2
	}
	j.buf = make([]byte, n)
}
