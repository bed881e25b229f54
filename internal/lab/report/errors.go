package report

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// ErrorKind is a kind of failure: how requests ended, and what the server, or the load generator, said of it.
type ErrorKind struct {
	End    string `json:"end"`
	Status int    `json:"status,omitempty"` // of HTTP; absent when there was none
	Type   string `json:"type"`             // as in the rows
	// Message is the first maxMessage bytes of what was said. Empty when nothing was, and for messages past the first
	// maxMessages of their kind.
	Message string `json:"message,omitempty"`
	// Count is over all phases, warm-up included.
	Count int `json:"count"`
}

const (
	maxMessage  = 500 // bytes of a message that are kept
	maxType     = 100 // bytes of a type that are kept
	maxMessages = 8   // different messages of one end, status and type: one that names its request is another each time
	maxKinds    = 200 // in all: a server that makes up types must not fill the report
)

// ErrorKinds counts failures by kind. The zero value is empty. It is used by one goroutine.
type ErrorKinds struct {
	counts   map[ErrorKind]int // Count is 0 in the keys
	messages map[ErrorKind]int // different ones, by kind without Message
}

// Add counts a failed request. first tells that it is the first of its kind.
func (k *ErrorKinds) Add(r *Row, said string) (kind ErrorKind, first bool) {
	return k.add(ErrorKind{End: r.Ended, Status: r.Status, Type: r.ErrorType, Message: cutMessage(said)}, 1)
}

func (k *ErrorKinds) add(kind ErrorKind, n int) (ErrorKind, bool) {
	if k.counts == nil {
		k.counts, k.messages = map[ErrorKind]int{}, map[ErrorKind]int{}
	}
	have, known := k.counts[kind]
	if !known && kind.Message != "" {
		if bare := (ErrorKind{End: kind.End, Status: kind.Status, Type: kind.Type}); k.messages[bare] < maxMessages {
			k.messages[bare]++
		} else {
			kind = bare
			have, known = k.counts[kind]
		}
	}
	if !known && len(k.counts) >= maxKinds {
		kind = ErrorKind{End: kind.End, Type: otherTypes}
		have, known = k.counts[kind]
	}
	k.counts[kind] = have + n
	return kind, !known
}

// otherTypes is the type of failures past maxKinds.
const otherTypes = "other types"

// Join adds what another part of the run counted.
func (k *ErrorKinds) Join(list []ErrorKind) {
	for _, e := range list {
		n := e.Count
		e.Count = 0
		k.add(e, n)
	}
}

// List is all kinds, the most frequent first; nil when nothing failed.
func (k *ErrorKinds) List() []ErrorKind {
	var out []ErrorKind
	for e, n := range k.counts {
		e.Count = n
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b ErrorKind) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Status, b.Status), cmp.Compare(a.End, b.End),
			cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.Message, b.Message))
	})
	return out
}

// countType counts a failure by its type, past maxKinds of them as one of the others.
func countType(by *map[string]int, kind string) {
	if *by == nil {
		*by = map[string]int{}
	}
	if _, known := (*by)[kind]; !known && len(*by) >= maxKinds {
		kind = otherTypes
	}
	(*by)[kind]++
}

// CutType is the beginning of an error's type: a server may make up any.
func CutType(s string) string { return cut(s, maxType) }

func cutMessage(s string) string { return cut(s, maxMessage) }

// cut is the beginning of s as valid text, cut between two characters.
func cut(s string, most int) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), most+utf8.UTFMax)], "\uFFFD"))
	if len(s) <= most {
		return s
	}
	n := most
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
