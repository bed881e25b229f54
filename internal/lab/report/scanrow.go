package report

import "math"

// rowScanner reads rows in the plain form that AppendJSON writes, several times as fast as encoding/json. Everything
// else that is JSON (escapes, spaces, unknown fields, fractions) goes through ParseRow, so both agree on what a row is.
type rowScanner struct {
	names map[string]string
}

// maxNames bounds the table of names: a file that makes up a new one in each row must not grow it for ever.
const maxNames = 1 << 16

func (s *rowScanner) parse(line []byte, out *Row) error {
	if s.plain(line, out) {
		return checkRow(out)
	}
	row, err := ParseRow(line)
	if err != nil {
		return err
	}
	*out = row
	return nil
}

// name returns the string of b, the same one each time.
func (s *rowScanner) name(b []byte) string {
	if v, ok := s.names[string(b)]; ok {
		return v
	}
	v := string(b)
	if len(s.names) < maxNames {
		s.names[v] = v
	}
	return v
}

// plain reads a line that is one flat object of known fields with plain strings and whole numbers, no space anywhere.
// It returns false for anything else.
func (s *rowScanner) plain(b []byte, out *Row) bool {
	*out = Row{Intended: Absent, Sent: Absent, First: Absent, Last: Absent, End: Absent, OutputTokens: Absent,
		Wrong: Absent}
	if len(b) < 2 || b[0] != '{' {
		return false
	}
	i := 1
	for {
		key, next, ok := plainString(b, i)
		if !ok || next+1 >= len(b) || b[next] != ':' {
			return false
		}
		i = next + 1
		if b[i] == '"' {
			val, next, ok := plainString(b, i)
			if !ok || !s.setString(out, key, val) {
				return false
			}
			i = next
		} else {
			v, next, ok := plainInt(b, i)
			if !ok || !setInt(out, key, v) {
				return false
			}
			i = next
		}
		if i >= len(b) {
			return false
		}
		switch b[i] {
		case ',':
			i++
		case '}':
			return i == len(b)-1
		default:
			return false
		}
	}
}

// plainString reads a quoted string of printable ASCII without escapes at b[i]; next is the place behind it.
func plainString(b []byte, i int) (val []byte, next int, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return nil, 0, false
	}
	for k := i + 1; k < len(b); k++ {
		switch c := b[k]; {
		case c == '"':
			return b[i+1 : k], k + 1, true
		case c < 0x20 || c == '\\' || c >= 0x80:
			return nil, 0, false
		}
	}
	return nil, 0, false
}

// plainInt reads a whole number as JSON writes it (no leading zero), well inside an int64.
func plainInt(b []byte, i int) (v int64, next int, ok bool) {
	neg := i < len(b) && b[i] == '-'
	if neg {
		i++
	}
	from := i
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if i-from >= 18 {
			return 0, 0, false
		}
		v = v*10 + int64(b[i]-'0')
	}
	if i == from || (b[from] == '0' && i > from+1) {
		return 0, 0, false
	}
	if neg {
		v = -v
	}
	return v, i, true
}

func (s *rowScanner) setString(r *Row, key, val []byte) bool {
	switch string(key) {
	case "id":
		r.ID = string(val)
	case "phase":
		r.Phase = s.name(val)
	case "end":
		r.Ended = s.name(val)
	case "error_type":
		r.ErrorType = s.name(val)
	case "worker":
		r.Worker = s.name(val)
	case "process":
		r.Process = s.name(val)
	case "lane":
		r.Lane = s.name(val)
	default:
		return false
	}
	return true
}

func setInt(r *Row, key []byte, v int64) bool {
	switch string(key) {
	case "intended_ns":
		r.Intended = v
		return true
	case "sent_ns":
		r.Sent = v
		return true
	case "first_ns":
		r.First = v
		return true
	case "last_ns":
		r.Last = v
		return true
	case "end_ns":
		r.End = v
		return true
	}
	if v > math.MaxInt32 || v < math.MinInt32 {
		return false
	}
	switch string(key) {
	case "status":
		r.Status = int(v)
	case "output_tokens":
		r.OutputTokens = int(v)
	case "chunks":
		r.Chunks = int(v)
	case "first_tokens":
		r.FirstTokens = int(v)
	case "wrong":
		r.Wrong = int(v)
	case "retries":
		r.Retries = int(v)
	default:
		return false
	}
	return true
}
