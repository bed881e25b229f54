package loadgen

import "bytes"

// eventReader reads server-sent events. Lines end in LF or CRLF. (A lone CR, which the format allows too, is sent by no
// server; it is taken as text.)
type eventReader struct {
	line []byte // a line that was cut
	data []byte // data of an event whose blank line has not come
	has  bool   // data holds something
	fail bool   // the event that is being read is of the kind "error"
	any  bool   // a line was read (a byte order mark may stand before the first)
}

func (e *eventReader) feed(p []byte, h handler) error {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			if e.line = append(e.line, p...); len(e.line) > maxEvent {
				return errLongLine
			}
			return nil
		}
		line := p[:i]
		p = p[i+1:]
		if len(e.line) > 0 {
			e.line = append(e.line, line...)
			line = e.line
			e.line = e.line[:0]
		}
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		}
		if !e.any {
			e.any = true
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			if err := e.dispatch(h); err != nil {
				return err
			}
			continue
		}
		value, ok := field(line, "data")
		if !ok { // comment, id, retry: none of them counts here
			e.name(line)
			continue
		}
		if !e.has && len(p) > 0 && p[0] == '\n' { // the usual event: one line, then the blank one; nothing is copied
			p = p[1:]
			fail := e.fail
			e.fail = false
			if err := h.event(value, fail); err != nil {
				return err
			}
			continue
		}
		if err := e.hold(value); err != nil {
			return err
		}
	}
	return nil
}

// name takes a line that names the event's kind. Of the kinds only "error" counts: with it an event is a failure
// whatever its data is.
func (e *eventReader) name(line []byte) {
	if value, ok := field(line, "event"); ok {
		e.fail = string(value) == "error"
	}
}

func (e *eventReader) hold(value []byte) error {
	if e.has {
		e.data = append(e.data, '\n')
	}
	e.data = append(e.data, value...)
	e.has = true
	if len(e.data) > maxEvent {
		return errLongLine
	}
	return nil
}

func (e *eventReader) dispatch(h handler) error {
	has, fail := e.has, e.fail
	e.has, e.fail = false, false
	if !has && !fail {
		return nil
	}
	err := h.event(e.data, fail)
	e.data = e.data[:0]
	return err
}

// end reads what the stream's end left: a last event whose blank line was not sent counts, since some servers end with
// "data: [DONE]".
func (e *eventReader) end(h handler) error {
	line := bytes.TrimSuffix(e.line, []byte{'\r'})
	if value, ok := field(line, "data"); ok {
		if err := e.hold(value); err != nil {
			return err
		}
	} else {
		e.name(line)
	}
	e.line = e.line[:0]
	return e.dispatch(h)
}

// field returns the value of a line of this name.
func field(line []byte, name string) ([]byte, bool) {
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return nil, false
	}
	if line = line[len(name):]; len(line) == 0 {
		return nil, true
	}
	if line[0] != ':' {
		return nil, false
	}
	if line = line[1:]; len(line) > 0 && line[0] == ' ' {
		line = line[1:]
	}
	return line, true
}
