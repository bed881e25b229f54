package loadgen

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
)

// chunk is what counts in one event of a stream. Slices point into the event (but for those that were unescaped).
type chunk struct {
	content []byte // text between its quotes, still escaped; the first that is not empty
	length  bool   // the answer was ended by the limit on its tokens
	tokens  int    // output tokens of usage, -1 without
	opened  uint64 // choices that the event holds, a bit each by their index
	done    uint64 // those of them that have a finish reason
	last    bool   // the event says that the answer is complete
	failed  bool   // the event is an error, or gives the answer up
	kind    []byte // the error's type, still escaped
	code    []byte // its code
	said    []byte // its message
}

var errJSON = errors.New("event is not JSON")

const (
	maxDepth  = 64      // of an event's nesting
	maxTokens = 1 << 40 // what usage may count
)

// givenUp are the finish reasons of an answer that its engine gave up, and the error types that they become.
var givenUp = map[string][]byte{
	"abort": []byte("finish_reason_abort"), "error": []byte("finish_reason_error"),
	"timeout":   []byte("finish_reason_timeout"),
	"cancelled": []byte("finish_reason_cancelled"), "canceled": []byte("finish_reason_cancelled"),
}

// scanChoices reads an event of /v1/chat/completions or /v1/completions without building a tree or allocating. It
// reads every valid JSON object as encoding/json would; it does not find every fault of invalid ones.
func scanChoices(p []byte) (chunk, error) {
	c := chunk{tokens: -1}
	s := scanner{p: p}
	var top envelope
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "choices":
			return s.array(func() error { return s.choice(&c) })
		case "usage":
			return s.usage("completion_tokens", &c)
		}
		return s.envelope(key, &top, &c)
	})
	if err == nil && s.peek() != 0 {
		err = errJSON
	}
	top.judge(&c)
	return c, err
}

// envelope is what an event says of itself beside its content.
type envelope struct{ object, kind, code, said []byte }

// envelope reads a member of an event that no API has for its own.
func (s *scanner) envelope(key []byte, e *envelope, c *chunk) error {
	switch string(key) {
	case "error":
		return s.errorValue(c)
	case "object":
		return s.text(&e.object)
	case "type":
		return s.text(&e.kind)
	case "code":
		return s.text(&e.code)
	case "message":
		return s.text(&e.said)
	}
	return s.skip()
}

// judge finds errors that are no member of the event but the event itself.
func (e *envelope) judge(c *chunk) {
	object, kind := string(plain(e.object)) == "error", string(plain(e.kind)) == "error"
	if !object && !kind {
		return
	}
	c.failed = true
	set := func(dst *[]byte, v []byte) {
		if len(*dst) == 0 {
			*dst = v
		}
	}
	if !kind {
		set(&c.kind, e.kind)
	}
	set(&c.code, e.code)
	set(&c.said, e.said)
}

// choice reads one of the choices. Its members come in any order.
func (s *scanner) choice(c *chunk) error {
	if s.peek() != '{' {
		return s.skip()
	}
	index := 0
	var reason []byte
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "index":
			return s.number(&index)
		case "delta":
			return s.objectOrSkip(func(key []byte) error {
				switch string(key) {
				case "content", "reasoning_content", "reasoning":
					return s.text(&c.content)
				}
				return s.skip()
			})
		case "text":
			return s.text(&c.content)
		case "finish_reason":
			return s.text(&reason)
		}
		return s.skip()
	})
	bit := uint64(1) << min(index, 63)
	c.opened |= bit
	if len(reason) > 0 {
		c.done |= bit
		c.finish(reason)
	}
	return err
}

// finish takes the reason for which an answer ended.
func (c *chunk) finish(reason []byte) {
	r := plain(reason)
	switch string(r) {
	case "length", "max_tokens", "max_output_tokens":
		c.length = true
	}
	if kind, ok := givenUp[string(r)]; ok {
		c.failed, c.kind = true, kind
	}
}

func (s *scanner) usage(member string, c *chunk) error {
	return s.objectOrSkip(func(key []byte) error {
		if string(key) == member {
			return s.number(&c.tokens)
		}
		return s.skip()
	})
}

// errorValue reads {"type":...,"code":...,"message":...}, or anything else that is not null as an error without a
// type; a text is its message.
func (s *scanner) errorValue(c *chunk) error {
	switch s.peek() {
	case 'n':
		return s.skip()
	case '{':
		c.failed = true
		return s.object(func(key []byte) error {
			switch string(key) {
			case "type":
				return s.text(&c.kind)
			case "code":
				return s.text(&c.code)
			case "message":
				return s.text(&c.said)
			}
			return s.skip()
		})
	}
	c.failed = true
	return s.text(&c.said)
}

// scanner walks over JSON text.
type scanner struct {
	p     []byte
	i     int
	depth int
}

// peek returns the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.p) {
		switch c := s.p[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c {
		return errJSON
	}
	s.i++
	return nil
}

// object reads an object; member is called with each key and must consume the value.
func (s *scanner) object(member func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.depth++; s.depth > maxDepth {
		return errJSON
	}
	defer func() { s.depth-- }()
	if s.peek() == '}' {
		s.i++
		return nil
	}
	for {
		key, err := s.str()
		if err != nil {
			return err
		}
		key = plain(key)
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.i++
			return nil
		default:
			return errJSON
		}
	}
}

func (s *scanner) objectOrSkip(member func(key []byte) error) error {
	if s.peek() != '{' {
		return s.skip()
	}
	return s.object(member)
}

// array reads an array; element must consume each value. What is no array is skipped.
func (s *scanner) array(element func() error) error {
	if s.peek() != '[' {
		return s.skip()
	}
	s.i++
	if s.depth++; s.depth > maxDepth {
		return errJSON
	}
	defer func() { s.depth-- }()
	if s.peek() == ']' {
		s.i++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.i++
			return nil
		default:
			return errJSON
		}
	}
}

// str reads a string and returns what stands between its quotes.
func (s *scanner) str() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.i
	for {
		n := bytes.IndexByte(s.p[s.i:], '"')
		if n < 0 {
			return nil, errJSON
		}
		s.i += n
		// A quote after an odd number of backslashes is text.
		back := 0
		for k := s.i - 1; k >= start && s.p[k] == '\\'; k-- {
			back++
		}
		s.i++
		if back%2 == 0 {
			return s.p[start : s.i-1], nil
		}
	}
}

// text reads a string into dst unless dst holds one or the string is empty. Other values are skipped.
func (s *scanner) text(dst *[]byte) error {
	if s.peek() != '"' {
		return s.skip()
	}
	v, err := s.str()
	if len(*dst) == 0 {
		*dst = v
	}
	return err
}

// number reads a whole number from 0 to maxTokens, however it is written. Other values are skipped.
func (s *scanner) number(dst *int) error {
	c := s.peek()
	start := s.i
	if err := s.skip(); err != nil {
		return err
	}
	if c != '-' && (c < '0' || c > '9') {
		return nil
	}
	v := 0
	for _, d := range s.p[start:s.i] {
		if d < '0' || d > '9' { // 2.56e2 is whole too
			if f, err := strconv.ParseFloat(string(s.p[start:s.i]), 64); err == nil && f >= 0 && f < maxTokens &&
				f == math.Trunc(f) {
				*dst = int(f)
			}
			return nil
		}
		if v = v*10 + int(d-'0'); v >= maxTokens {
			return nil
		}
	}
	*dst = v
	return nil
}

// skip reads any value.
func (s *scanner) skip() error {
	switch s.peek() {
	case '"':
		_, err := s.str()
		return err
	case '{':
		return s.object(func([]byte) error { return s.skip() })
	case '[':
		return s.array(s.skip)
	case 0:
		return errJSON
	}
	start := s.i
	for s.i < len(s.p) {
		switch s.p[s.i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return checkScalar(s.p[start:s.i])
		}
		s.i++
	}
	return checkScalar(s.p[start:s.i])
}

func checkScalar(v []byte) error {
	if len(v) == 0 {
		return errJSON
	}
	switch v[0] {
	case 't', 'f', 'n':
		if s := string(v); s != "true" && s != "false" && s != "null" {
			return errJSON
		}
		return nil
	}
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return errJSON
	}
	return nil
}

// plain returns the text of what stands between a string's quotes, as encoding/json gives it: without escapes, and
// U+FFFD for what is not UTF-8. Only text that needs it, which is rare, allocates.
func plain(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return raw
	}
	q := make([]byte, 0, len(raw)+2)
	q = append(append(append(q, '"'), raw...), '"')
	var s string
	if json.Unmarshal(q, &s) != nil {
		return raw
	}
	return []byte(s)
}
