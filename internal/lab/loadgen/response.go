package loadgen

import (
	"bytes"
	"errors"
	"fmt"
)

// What a response may be at fault for. A fault ends the request as "protocol".
var (
	errNotHTTP    = errors.New("the server does not speak HTTP/1.1")
	errLongLine   = errors.New("a line of the response is too long")
	errBadChunk   = errors.New("the response has a malformed chunk")
	errBadLength  = errors.New("the response has a malformed Content-Length")
	errExtraBytes = errors.New("bytes follow the response")
)

const (
	maxHeaderLine = 16 << 10
	maxHeaders    = 256
	maxEvent      = 4 << 20  // an event of the stream, in bytes
	maxPlainBody  = 64 << 10 // what is kept of a body that is no event stream
)

// handler takes what a response holds. Slices are valid during the call.
type handler interface {
	header(name, value []byte)
	// headersDone tells whether the body is an event stream.
	headersDone(status int) (sse bool)
	// event takes the data of an event; failure says that the event's own name is "error".
	event(data []byte, failure bool) error
}

type readState uint8

const (
	atStatus readState = iota
	atHeader
	atBody      // left bytes, or until the connection closes when left < 0
	atChunkSize // chunked
	atChunkData
	atChunkEnd
	atTrailer
	atDone
)

// response reads one HTTP/1.1 response and the event stream in it, however the bytes are cut. It keeps only lines that
// were cut.
type response struct {
	state   readState
	chunked bool
	sized   bool // Content-Length was given
	sse     bool
	// keep tells whether the connection can carry the next request; known after the headers.
	keep    bool
	status  int
	headers int
	left    int64
	line    []byte // a line that was cut
	events  eventReader
	plain   []byte // the body, when it is no event stream
}

// reset makes r ready for the next response, keeping its buffers.
func (r *response) reset() {
	*r = response{line: r.line[:0], plain: r.plain[:0], events: eventReader{line: r.events.line[:0],
		data: r.events.data[:0]}}
}

// done tells whether the response was read to its end.
func (r *response) done() bool { return r.state == atDone }

// feed reads the next bytes.
func (r *response) feed(p []byte, h handler) error {
	for len(p) > 0 {
		switch r.state {
		case atDone:
			r.keep = false
			return errExtraBytes
		case atBody:
			n := len(p)
			if r.left >= 0 {
				n = int(min(r.left, int64(n)))
				r.left -= int64(n)
			}
			if err := r.body(p[:n], h); err != nil {
				return err
			}
			if p = p[n:]; r.left == 0 {
				if err := r.finish(h); err != nil {
					return err
				}
			}
		case atChunkData:
			n := int(min(r.left, int64(len(p))))
			if err := r.body(p[:n], h); err != nil {
				return err
			}
			if r.left -= int64(n); r.left == 0 {
				r.state = atChunkEnd
			}
			p = p[n:]
		default:
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				if r.line = append(r.line, p...); len(r.line) > maxHeaderLine {
					return errLongLine
				}
				return nil
			}
			line := p[:i]
			if len(r.line) > 0 {
				r.line = append(r.line, line...)
				line = r.line
			}
			p = p[i+1:]
			err := r.takeLine(bytes.TrimSuffix(line, []byte{'\r'}), h)
			r.line = r.line[:0]
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// eof tells the response that the connection was closed. It is an error unless the response ends there.
func (r *response) eof(h handler) error {
	r.keep = false
	if r.state == atBody && r.left < 0 {
		return r.finish(h)
	}
	if r.state == atDone {
		return nil
	}
	return errClosed
}

// errClosed says that the connection was closed before the response's end.
var errClosed = errors.New("the connection was closed before the response's end")

func (r *response) takeLine(line []byte, h handler) error {
	switch r.state {
	case atStatus:
		return r.takeStatus(line)
	case atHeader:
		if len(line) == 0 {
			return r.takeBlank(h)
		}
		if r.headers++; r.headers > maxHeaders {
			return errLongLine
		}
		return r.takeHeader(line, h)
	case atChunkSize:
		n, err := chunkSize(line)
		if err != nil {
			return err
		}
		if r.left = n; n == 0 {
			r.state = atTrailer
		} else {
			r.state = atChunkData
		}
	case atChunkEnd:
		if len(line) != 0 {
			return errBadChunk
		}
		r.state = atChunkSize
	case atTrailer:
		if len(line) == 0 {
			return r.finish(h)
		}
	}
	return nil
}

func (r *response) takeStatus(line []byte) error {
	// "HTTP/1.1 200 OK"; the reason may be missing.
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' ||
		(len(line) > 12 && line[12] != ' ') {
		return errNotHTTP
	}
	status := 0
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return errNotHTTP
		}
		status = status*10 + int(c-'0')
	}
	r.status, r.keep, r.state = status, line[7] == '1', atHeader
	return nil
}

func (r *response) takeHeader(line []byte, h handler) error {
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok {
		return errNotHTTP
	}
	value = bytes.TrimSpace(value)
	switch {
	case equalFold(name, "content-length"):
		n := int64(0)
		for _, c := range value {
			if c < '0' || c > '9' || n > 1<<50 {
				return errBadLength
			}
			n = n*10 + int64(c-'0')
		}
		if len(value) == 0 || (r.sized && n != r.left) {
			return errBadLength
		}
		r.sized, r.left = true, n
	case equalFold(name, "transfer-encoding"):
		if !equalFold(value, "chunked") {
			return fmt.Errorf("the response has the transfer encoding %q, expected chunked", value)
		}
		r.chunked = true
	case equalFold(name, "connection"):
		for v := range bytes.SplitSeq(value, []byte{','}) {
			switch v = bytes.TrimSpace(v); {
			case equalFold(v, "close"):
				r.keep = false
			case equalFold(v, "keep-alive"):
				r.keep = true
			}
		}
	}
	h.header(name, value)
	return nil
}

// takeBlank ends the headers.
func (r *response) takeBlank(h handler) error {
	if r.status/100 == 1 { // an interim response; the real one follows
		line, plain, ev := r.line, r.plain, r.events
		*r = response{line: line, plain: plain, events: ev}
		return nil
	}
	r.sse = h.headersDone(r.status)
	switch {
	case r.status == 204 || r.status == 304:
		return r.finish(h)
	case r.chunked: // it beats Content-Length (RFC 9112, 6.3)
		r.state = atChunkSize
	case r.sized:
		r.state = atBody
		if r.left == 0 {
			return r.finish(h)
		}
	default:
		r.state, r.left, r.keep = atBody, -1, false
	}
	return nil
}

func (r *response) body(p []byte, h handler) error {
	if r.sse {
		return r.events.feed(p, h)
	}
	r.plain = append(r.plain, p[:min(len(p), maxPlainBody-len(r.plain))]...)
	return nil
}

func (r *response) finish(h handler) error {
	r.state = atDone
	if r.sse {
		return r.events.end(h)
	}
	return nil
}

func chunkSize(line []byte) (int64, error) {
	if i := bytes.IndexByte(line, ';'); i >= 0 { // extensions
		line = line[:i]
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 || len(line) > 15 {
		return 0, errBadChunk
	}
	n := int64(0)
	for _, c := range line {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, errBadChunk
		}
		n = n<<4 | int64(c)
	}
	return n, nil
}

// equalFold compares with a lower-case ASCII word.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
