package serving

import (
	"bytes"
	"encoding/json"
)

// Class says what an event is to the stream that it is part of.
type Class uint8

// Classes of events.
const (
	ClassEvent   Class = iota // one among many
	ClassComment              // comments alone, or fields that carry nothing
	ClassLast                 // the engine's last: the answer is complete
	ClassError                // it says that the answer failed
)

// EventFields returns the event's name, "" where it has none, and its data, the lines joined. Lines end with LF, CR or
// both. data is part of the event where it stands on one line; ok is false where the event has no data field.
func EventFields(event []byte) (name string, data []byte, ok bool) {
	lines := 0
	for len(event) > 0 {
		line := event
		if i := bytes.IndexAny(event, "\r\n"); i >= 0 {
			line = event[:i]
			if event[i] == '\r' && i+1 < len(event) && event[i+1] == '\n' {
				i++
			}
			event = event[i+1:]
		} else {
			event = nil
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if lines++; lines == 1 {
				data = value[:len(value):len(value)]
			} else {
				data = append(append(data, '\n'), value...)
			}
		}
	}
	return name, data, lines > 0
}

// Classify says what an event is. It looks closer only where the event holds a word that it would have to hold, so that
// a token costs no parse.
func (d Dialect) Classify(event []byte) Class {
	name, data, ok := EventFields(event)
	if !ok {
		return ClassComment
	}
	switch d {
	case DialectChat:
		if string(bytes.TrimSpace(data)) == "[DONE]" {
			return ClassLast
		}
	case DialectResponses, DialectMessages:
		if name == "" { // the data say it, too
			name = typeOf(data)
		}
		switch name {
		case "error", "response.failed":
			return ClassError
		case "response.completed", "response.incomplete":
			if d == DialectResponses {
				return ClassLast
			}
		case "message_stop":
			if d == DialectMessages {
				return ClassLast
			}
		}
		return ClassEvent
	}
	if name == "error" || hasError(data) {
		return ClassError
	}
	return ClassEvent
}

func typeOf(data []byte) string {
	var v struct {
		Type any `json:"type"`
	}
	if json.Unmarshal(data, &v) != nil {
		return ""
	}
	s, _ := v.Type.(string)
	return s
}

// hasError says whether the data are an object with an error in it.
func hasError(data []byte) bool {
	if !bytes.Contains(data, []byte(`"error"`)) {
		return false
	}
	var v map[string]json.RawMessage // a struct would take "Error" for it
	if json.Unmarshal(data, &v) != nil {
		return false
	}
	e, ok := v["error"]
	return ok && string(e) != "null"
}

// AppendBroken appends what the frontend adds to a stream that broke, in the path's dialect and with its blank lines:
// never behind the engine's last event. code may be "".
func (d Dialect) AppendBroken(dst []byte, errType, code, message string) []byte {
	type object struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	var c *string
	if code != "" {
		c = &code
	}
	var v any
	switch d {
	case DialectResponses:
		dst = append(dst, "event: error\n"...)
		v = struct {
			Type    string  `json:"type"`
			Code    string  `json:"code"`
			Message string  `json:"message"`
			Param   *string `json:"param"`
		}{"error", errType, message, nil}
	case DialectMessages:
		dst = append(dst, "event: error\n"...)
		v = map[string]any{"type": "error", "error": map[string]string{"type": errType, "message": message}}
	default:
		v = map[string]any{"error": object{message, errType, nil, c}}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return dst // not reached: strings can be written
	}
	dst = append(append(append(dst, "data: "...), text...), "\n\n"...)
	if d == DialectChat {
		dst = append(dst, "data: [DONE]\n\n"...)
	}
	return dst
}
