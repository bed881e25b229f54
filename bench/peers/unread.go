package peers

import "io"

// unread is what was read from a stream and not taken yet: buf[from:to].
type unread struct {
	buf      []byte
	from, to int
}

// bytes is what is there, valid until fill.
func (u *unread) bytes() []byte { return u.buf[u.from:u.to] }

// fill reads more, at least one byte. The stream may not end here.
func (u *unread) fill(stream io.Reader) error {
	copy(u.buf, u.bytes())
	u.from, u.to = 0, u.to-u.from
	if u.to == len(u.buf) {
		u.buf = append(u.buf, make([]byte, len(u.buf))...)
	}
	n, err := stream.Read(u.buf[u.to:])
	u.to += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
