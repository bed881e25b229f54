package loadgen

import "bytes"

// eventReader reads server-sent events. Lines end in LF or CRLF. (A lone CR, which the format allows too, is sent by no server; it is
// taken as text.)
type eventReader struct {
	line []byte // a line that was cut
	data []byte // data of an event whose blank line has not come
	has  bool   // data holds something
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
		value, ok := dataField(line)
		if !ok { // comment, event, id, retry: none of them counts here
			continue
		}
		if !e.has && len(p) > 0 && p[0] == '\n' { // the usual event: one line, then the blank one; nothing is copied
			p = p[1:]
			if err := h.event(value); err != nil {
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
	if !e.has {
		return nil
	}
	e.has = false
	err := h.event(e.data)
	e.data = e.data[:0]
	return err
}

// end reads what the stream's end left: a last event whose blank line was not sent counts, since some servers end with "data: [DONE]".
func (e *eventReader) end(h handler) error {
	if value, ok := dataField(bytes.TrimSuffix(e.line, []byte{'\r'})); ok {
		if err := e.hold(value); err != nil {
			return err
		}
	}
	e.line = e.line[:0]
	return e.dispatch(h)
}

// dataField returns the value of a "data" line.
func dataField(line []byte) ([]byte, bool) {
	if len(line) < 4 || string(line[:4]) != "data" {
		return nil, false
	}
	if line = line[4:]; len(line) == 0 {
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
