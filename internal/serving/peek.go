package serving

import (
	"encoding/json"
	"fmt"
)

// Peeked is what a frontend reads of a body.
type Peeked struct {
	Model             string // "" where it is not named
	ModelAt, ModelLen int
	Stream            bool
}

// BodyError says what is plainly wrong with a body; Param is the field, "" for the body itself.
type BodyError struct{ Param, Text string }

func (e *BodyError) Error() string { return e.Text }

// Peek reads the top-level model and stream of a JSON object, by their exact names after unescaping. It walks over the
// rest without judging it: what is no JSON inside is the engine's to refuse. The error is a *BodyError.
func Peek(body []byte) (Peeked, error) {
	s := scan{b: body}
	var p Peeked
	var model, stream bool
	if !s.take('{') {
		return p, &BodyError{"", "the body is no JSON object"}
	}
	if s.take('}') {
		return p, s.end()
	}
	for {
		key, ok := s.str()
		if !ok || !s.take(':') {
			return p, s.broken()
		}
		s.space()
		at := s.i
		if !s.skip() {
			return p, s.broken()
		}
		value := body[at:s.i]
		switch name := unquote(key); name {
		case "model":
			if model {
				return p, twice(name)
			}
			model = true
			if value[0] != '"' || json.Unmarshal(value, &p.Model) != nil {
				return p, &BodyError{name, "model is no string"}
			}
			p.ModelAt, p.ModelLen = at, len(value)
		case "stream":
			if stream {
				return p, twice(name)
			}
			stream = true
			switch string(value) {
			case "true":
				p.Stream = true
			case "false", "null":
			default:
				return p, &BodyError{name, "stream is neither true nor false"}
			}
		}
		if s.take('}') {
			return p, s.end()
		}
		if !s.take(',') {
			return p, s.broken()
		}
	}
}

func twice(name string) error { return &BodyError{name, name + " stands twice in the body"} }

func unquote(key []byte) string {
	for _, c := range key {
		if c == '\\' {
			var s string
			if json.Unmarshal(key, &s) != nil {
				return ""
			}
			return s
		}
	}
	return string(key[1 : len(key)-1])
}

// scan walks over JSON.
type scan struct {
	b []byte
	i int
}

func (s *scan) broken() error {
	return &BodyError{"", fmt.Sprintf("the body is broken JSON at byte %d", s.i)}
}

// end complains of anything behind the object.
func (s *scan) end() error {
	if s.space(); s.i < len(s.b) {
		return s.broken()
	}
	return nil
}

func (s *scan) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\t' || s.b[s.i] == '\r') {
		s.i++
	}
}

// take steps over c, and the space before it, if it is next.
func (s *scan) take(c byte) bool {
	if s.space(); s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// str steps over a string and returns it with its quotes.
func (s *scan) str() ([]byte, bool) {
	s.space()
	at := s.i
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, false
	}
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			return s.b[at:s.i], true
		}
	}
	s.i = len(s.b)
	return nil, false
}

// skip steps over one value. It counts brackets and does not call itself: a body may nest as deep as it is long.
func (s *scan) skip() bool {
	for depth := 0; ; {
		s.space()
		if s.i >= len(s.b) {
			return false
		}
		switch c := s.b[s.i]; c {
		case '"':
			if _, ok := s.str(); !ok {
				return false
			}
		case '{', '[':
			depth++
			s.i++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return false
			}
			s.i++
		case ',', ':':
			if depth == 0 {
				return false
			}
			s.i++
			continue
		default:
			for s.i < len(s.b) && !delimiter(s.b[s.i]) {
				s.i++
			}
		}
		if depth == 0 {
			return true
		}
	}
}

func delimiter(c byte) bool {
	switch c {
	case ' ', '\n', '\t', '\r', ',', ':', '{', '}', '[', ']', '"':
		return true
	}
	return false
}
