package mock

import (
	"fmt"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
)

// RefuseReason says why Submit refused a request.
type RefuseReason string

const (
	RefusedBusy     RefuseReason = "busy"     // running and waiting places are taken
	RefusedDraining RefuseReason = "draining" // Drain or Close was called
	// more output than MaxOutputTokens was asked for, or a very long stop string
	RefusedTooLong  RefuseReason = "too_long"
	RefusedInjected RefuseReason = "injected" // FailRefuse; to the frontend it looks like busy
)

// maxStopBytes bounds a stop string, and with it what looking for it costs.
const maxStopBytes = 1024

// RefuseReasons are all of them.
var RefuseReasons = [...]RefuseReason{RefusedBusy, RefusedDraining, RefusedTooLong, RefusedInjected}

// RefusedError is what Submit returns.
type RefusedError struct {
	Reason RefuseReason
	text   string
}

func (e *RefusedError) Error() string { return e.text }

// state of a request in the engine's hands.
type state uint8

const (
	waiting state = iota
	held          // HoldShare: it does not even wait for a place yet
	prefilling
	decoding
	parked  // as decoding, but its window is full
	stalled // FailStall: it only keeps its place
	done
)

// seq is one request. The engine's goroutine owns it, except for queued (guarded by Engine.mu).
type seq struct {
	w      Writer
	gen    tokentext.Gen
	state  state
	queued bool // on Engine.writable

	next    int    // index of the next token
	limit   int    // number of whole tokens
	tail    string // the beginning of one more, which a stop string cut
	reason  string // finish reason when all are out
	prompt  int
	inject  FailureType
	failAt  int // value of next at which inject shows, -1 never
	arrived time.Time
	readyAt time.Time // end of its prefill, or of its being held
	order   uint64    // breaks ties of readyAt
}

// total is how many records the whole response has.
func (s *seq) total() int {
	if s.tail != "" {
		return s.limit + 1
	}
	return s.limit
}

// newSeq works out how long the response is. What it costs grows with the length only where there are stop strings.
func newSeq(cfg *Config, req mockproto.Request, w Writer) (*seq, *RefusedError) {
	n, reason := req.MaxTokens, mockproto.FinishLength
	if n == 0 { // the engine comes to an end of its own
		n, reason = cfg.OutputTokens, mockproto.FinishStop
	}
	if n > MaxOutputTokens {
		return nil, &RefusedError{Reason: RefusedTooLong,
			text: fmt.Sprintf("max_tokens is %d, this engine makes at most %d", n, MaxOutputTokens)}
	}
	s := &seq{
		w: w, gen: tokentext.New(req.ID).WithSize(cfg.TokenBytes),
		limit: n, reason: reason, prompt: req.PromptTokens, failAt: -1,
	}
	for _, stop := range req.Stop {
		if len(stop) > maxStopBytes {
			return nil, &RefusedError{Reason: RefusedTooLong,
				text: fmt.Sprintf("a stop string has %d bytes, this engine takes at most %d", len(stop), maxStopBytes)}
		}
	}
	if len(req.Stop) > 0 {
		if whole, tail, found := cutAtStop(s.gen, n, req.Stop); found {
			s.limit, s.tail, s.reason = whole, tail, mockproto.FinishStop
		}
	}
	return s, nil
}
