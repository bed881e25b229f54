package loadgen

import (
	"bytes"
	"encoding/json"
	"errors"
)

// chunk is what counts in one event of a completion stream. Slices point into the event.
type chunk struct {
	content    []byte // text between its quotes, still escaped; the first that is not empty of content, reasoning_content, reasoning and text
	length     bool   // finish_reason is "length"
	tokens     int    // completion_tokens of usage, -1 without
	failed     bool   // the event is an error
	errorType  []byte
	errorExtra []byte // its code, when it has no type
}

var errJSON = errors.New("event is not JSON")

// maxDepth bounds the nesting of an event.
const maxDepth = 64

// scanChunk reads an event without building a tree or allocating. It reads every valid JSON object as encoding/json would; it does not find every
// fault of invalid ones.
func scanChunk(p []byte) (chunk, error) {
	c := chunk{tokens: -1}
	s := scanner{p: p}
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "choices":
			return s.array(func() error { return s.choice(&c) })
		case "usage":
			return s.objectOrSkip(func(key []byte) error {
				if string(key) == "completion_tokens" {
					return s.number(&c.tokens)
				}
				return s.skip()
			})
		case "error":
			return s.errorValue(&c)
		}
		return s.skip()
	})
	if err == nil && s.peek() != 0 {
		err = errJSON
	}
	return c, err
}

func (s *scanner) choice(c *chunk) error {
	return s.objectOrSkip(func(key []byte) error {
		switch string(key) {
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
			var v []byte
			err := s.text(&v)
			c.length = c.length || string(v) == "length"
			return err
		}
		return s.skip()
	})
}

// errorValue reads {"type":...,"code":...}, or anything else that is not null as an error without a type.
func (s *scanner) errorValue(c *chunk) error {
	switch s.peek() {
	case 'n':
		return s.skip()
	case '{':
		c.failed = true
		return s.object(func(key []byte) error {
			switch string(key) {
			case "type":
				return s.text(&c.errorType)
			case "code":
				return s.text(&c.errorExtra)
			}
			return s.skip()
		})
	}
	c.failed = true
	return s.skip()
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
		if bytes.IndexByte(key, '\\') >= 0 {
			key = unescape(key)
		}
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

// number reads a whole number that is not negative. Other values are skipped.
func (s *scanner) number(dst *int) error {
	c := s.peek()
	start := s.i
	if err := s.skip(); err != nil {
		return err
	}
	if c < '0' || c > '9' {
		return nil
	}
	v := 0
	for _, d := range s.p[start:s.i] {
		if d < '0' || d > '9' || v > 1<<40 {
			return nil
		}
		v = v*10 + int(d-'0')
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

// unescape returns the text of a string with escapes. It is rare, so it may allocate.
func unescape(raw []byte) []byte {
	q := make([]byte, 0, len(raw)+2)
	q = append(append(append(q, '"'), raw...), '"')
	var s string
	if json.Unmarshal(q, &s) != nil {
		return raw
	}
	return []byte(s)
}
