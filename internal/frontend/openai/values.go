package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Content is the text of a message. On the wire it is a string, null, or an array of text parts, which are joined.
type Content string

// UnmarshalJSON reads any of the forms. Its error is an *Error.
func (c *Content) UnmarshalJSON(p []byte) error {
	bad := func(what string) error {
		return Invalid("messages.content", "invalid_type", "messages.content "+what+
			": send a string or an array of text parts")
	}
	switch kindOf(p) {
	case 'n':
		*c = ""
		return nil
	case '"':
		return unquote(p, (*string)(c))
	case '[':
		var parts []struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		if err := json.Unmarshal(p, &parts); err != nil {
			return bad("has a part that is no object of type and text")
		}
		var text []byte
		for i, part := range parts {
			if part.Type != "text" || part.Text == nil {
				return bad(fmt.Sprintf("part %d has type %q", i, part.Type))
			}
			text = append(text, *part.Text...)
		}
		*c = Content(text)
		return nil
	}
	return bad("is neither a string nor an array")
}

// Prompt is the prompt of a completion: a text, or token ids.
type Prompt struct {
	Text string
	IDs  int // how many token ids, when it came as ids
}

func (p *Prompt) tokens() int {
	if p.IDs > 0 {
		return p.IDs
	}
	return words(p.Text)
}

// UnmarshalJSON reads a string, an array of one string, an array of token ids, or an array of one such array. Its error
// is an *Error.
func (p *Prompt) UnmarshalJSON(b []byte) error {
	bad := func(what string) error {
		return Invalid("prompt", "invalid_type", "prompt "+what+": send a string or one array of token ids")
	}
	if kindOf(b) == '"' {
		return unquote(b, &p.Text)
	}
	if kindOf(b) != '[' {
		return bad("is neither a string nor an array")
	}
	switch kindOf(bytes.TrimLeft(b, " \t\r\n")[1:]) {
	case ']':
		return bad("is empty")
	case '"', '[':
		var list []json.RawMessage
		if err := json.Unmarshal(b, &list); err != nil {
			return bad("cannot be read")
		}
		if len(list) > 1 {
			return Invalid("prompt", "unsupported_value",
				fmt.Sprintf("prompt holds %d prompts: only 1 a request is supported, send several requests", len(list)))
		}
		return p.UnmarshalJSON(list[0])
	}
	var ids []uint32
	if err := json.Unmarshal(b, &ids); err != nil {
		return bad("is an array of other things than token ids")
	}
	p.IDs = len(ids)
	return nil
}

// stops is stop: a string, null, or an array of at most MaxStops strings.
type stops []string

func (s *stops) UnmarshalJSON(p []byte) error {
	bad := func(what string) error {
		return Invalid("stop", "invalid_value", "stop "+what+fmt.Sprintf(": send a string or at most %d", MaxStops))
	}
	var list []string
	switch kindOf(p) {
	case 'n':
	case '"':
		list = make([]string, 1)
		if err := json.Unmarshal(p, &list[0]); err != nil {
			return bad("cannot be read")
		}
	case '[':
		if err := json.Unmarshal(p, &list); err != nil {
			return bad("holds other things than strings")
		}
	default:
		return bad("is neither a string nor an array")
	}
	if len(list) > MaxStops {
		return bad(fmt.Sprintf("has %d strings", len(list)))
	}
	for _, t := range list {
		if t == "" {
			return bad("has an empty string")
		}
	}
	*s = list
	return nil
}

// unquote reads a JSON string that is known to be valid. Prompts are long, and most have nothing to unescape.
func unquote(p []byte, s *string) error {
	if t := bytes.TrimSpace(p); bytes.IndexByte(t, '\\') < 0 && utf8.Valid(t) {
		*s = string(t[1 : len(t)-1])
		return nil
	}
	return json.Unmarshal(p, s)
}

// kindOf is the first byte of a JSON value, which tells its kind.
func kindOf(p []byte) byte {
	p = bytes.TrimLeft(p, " \t\r\n")
	if len(p) == 0 {
		return 0
	}
	return p[0]
}

// words counts the words of s without allocating.
func words(s string) int {
	n, in := 0, false
	for i := 0; i < len(s); {
		c := s[i]
		space, size := c == ' ' || c-'\t' < 5, 1
		if c >= utf8.RuneSelf {
			r, k := utf8.DecodeRuneInString(s[i:])
			space, size = unicode.IsSpace(r), k
		}
		if !space && !in {
			n++
		}
		in = !space
		i += size
	}
	return n
}
