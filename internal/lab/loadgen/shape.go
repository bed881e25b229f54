package loadgen

import "bytes"

// shape remembers how a server's content events look around the text, so that the next one of the same response is
// compared with it instead of being scanned: most events of a response differ in their text alone.
type shape struct {
	before, after []byte // after begins with the quote that ends the text
	misses        int8
}

// maxMisses is after how many events of another shape a response is scanned event by event: its events differ in more
// than the text.
const maxMisses = 4

// content returns the text of an event of this shape.
func (s *shape) content(ev []byte) ([]byte, bool) {
	n, m := len(s.before), len(s.after)
	if m == 0 || len(ev) <= n+m || !bytes.HasPrefix(ev, s.before) || !bytes.HasSuffix(ev, s.after) {
		return nil, false
	}
	text := ev[n : len(ev)-m]
	for _, c := range text {
		if c == '"' || c == '\\' || c < 0x20 { // the event is not what it looks like
			return nil, false
		}
	}
	return text, true
}

// learn takes the shape of an event that holds nothing but text. c.content must point into ev.
func (s *shape) learn(ev []byte, c chunk) {
	if s.misses >= maxMisses || len(c.content) == 0 || c.tokens >= 0 || c.done != 0 || c.last || c.failed {
		return
	}
	s.misses++
	at := cap(ev) - cap(c.content)
	end := at + len(c.content)
	if at <= 0 || end >= len(ev) || ev[at-1] != '"' || ev[end] != '"' {
		return
	}
	s.before = append(s.before[:0], ev[:at]...)
	s.after = append(s.after[:0], ev[end:]...)
}

// reset forgets the shape, keeping its room.
func (s *shape) reset() { *s = shape{before: s.before[:0], after: s.after[:0]} }
