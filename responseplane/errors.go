package responseplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/laneway-ai/laneway/mux"
)

// EndKind says how a response ended.
type EndKind uint8

// Kinds of ends.
const (
	EndComplete = EndKind(mux.EndComplete) // all records came, counted
	EndFailed   = EndKind(mux.EndFailed)   // the worker failed it, with a Code
	EndStopped  = EndKind(mux.EndStopped)  // the caller asked for Stop and the worker ended it early
	EndKilled   = EndKind(mux.EndKilled)   // the caller gave it up
	EndRefused  = EndKind(mux.EndRefused)  // nobody would run it: busy, draining, no worker
	EndDeadline = EndKind(mux.EndDeadline) // first record, inactivity or request deadline
	EndLost     = EndKind(mux.EndLost)     // the worker or the way to it is gone
	EndProtocol = EndKind(mux.EndProtocol) // a side broke the protocol
)

func (k EndKind) String() string { return mux.EndType(k).String() }

// Code says why a response failed or was refused.
type Code uint16

// Codes. The first group goes with EndFailed, the second with EndRefused.
const (
	CodeNone        Code = 0
	CodeInternal    Code = 1
	CodeValidation  Code = 2 // the request is at fault
	CodeNotFound    Code = 3 // what it names does not exist (a model, an adapter)
	CodeBusy        Code = 16
	CodeDraining    Code = 17
	CodeNoWorker    Code = 18 // no worker for the model can be reached
	CodeUnsupported Code = 19 // version
	CodeBadRequest  Code = 20
	CodeTooLarge    Code = 21 // the request is larger than the delivery path takes
)

var codeNames = map[Code]string{CodeNone: "", CodeInternal: "internal", CodeValidation: "validation",
	CodeNotFound: "not_found", CodeBusy: "busy",
	CodeDraining: "draining", CodeNoWorker: "no_worker", CodeUnsupported: "unsupported", CodeBadRequest: "bad_request",
	CodeTooLarge: "too_large"}

func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// Sentinels for errors.Is. An *Error matches exactly one of the first seven.
var (
	ErrFailed      = errors.New("responseplane: failed")
	ErrBusy        = errors.New("responseplane: busy")
	ErrUnavailable = errors.New("responseplane: unavailable")
	ErrDeadline    = errors.New("responseplane: deadline")
	ErrLost        = errors.New("responseplane: lost")
	ErrCanceled    = errors.New("responseplane: canceled")
	ErrProtocol    = errors.New("responseplane: protocol")

	// ErrWindowFull: TryPut and TrySend do not wait; OnWritable tells when there is room.
	ErrWindowFull = mux.ErrWindowFull
	// ErrSinkTakes: Next and NextBatch have given all that the sink of OnRecords left; the sink gets what comes.
	ErrSinkTakes = errors.New("responseplane: the sink has the response again")
	// ErrEnded: the Writer has ended its response already.
	ErrEnded = mux.ErrEnded
	// ErrRecordTooLarge: the record can never fit.
	ErrRecordTooLarge = mux.ErrRecordTooLarge
	// ErrClosed: the Frontend or Worker is closed.
	ErrClosed = mux.ErrClosed
)

// Error is every end of a response but complete.
type Error struct {
	Kind    EndKind
	Code    Code
	Text    string
	Worker  string // worker id, "" where it is not known (Mint)
	Node    NodeID
	Plane   string // of the lane that carried it
	Lane    int
	Records uint64 // records that came before
	Trailer []byte // of the worker's END

	retry bool  // the worker says so
	cause error // what lies below
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("responseplane: ")
	b.WriteString(e.Kind.String())
	if e.Code != CodeNone {
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	if e.Worker != "" {
		fmt.Fprintf(&b, " at worker %s", e.Worker)
	}
	if e.Text != "" {
		b.WriteString(": " + e.Text)
	}
	return b.String()
}

// Is matches the sentinel of the error's kind.
func (e *Error) Is(target error) bool { return target == e.sentinel() }

func (e *Error) sentinel() error {
	switch e.Kind {
	case EndFailed:
		return ErrFailed
	case EndRefused:
		if e.Code == CodeBusy {
			return ErrBusy
		}
		if e.Code == CodeBadRequest || e.Code == CodeTooLarge {
			return ErrFailed
		}
		return ErrUnavailable
	case EndDeadline:
		return ErrDeadline
	case EndLost:
		return ErrLost
	case EndStopped, EndKilled:
		return ErrCanceled
	}
	return ErrProtocol
}

// Unwrap is the error below, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Retryable says whether the same request may be sent again without the client having seen any of the answer.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case EndRefused:
		return e.Code == CodeBusy || e.Code == CodeDraining || e.Code == CodeNoWorker
	case EndFailed:
		return e.retry && e.Records == 0
	case EndDeadline, EndLost:
		return e.Records == 0
	}
	return false
}

// Failure is how a worker ends a response that it cannot complete.
type Failure struct {
	Code      Code   // CodeInternal (default), CodeValidation, CodeNotFound
	Text      string // at most 1 KiB; for the caller's eyes
	Retryable bool   // another attempt, elsewhere or later, may succeed
	Trailer   []byte // at most 16 KiB
}

// refusal makes the *Error of an attempt that no worker took.
func refusal(code Code, worker string, node NodeID, text string, cause error) *Error {
	return &Error{Kind: EndRefused, Code: code, Worker: worker, Node: node, Text: text, cause: cause}
}

// asMint translates what minting failed with.
func asMint(err error, worker string, node NodeID) error {
	switch {
	case errors.Is(err, mux.ErrBusy):
		return refusal(CodeBusy, worker, node, err.Error(), err)
	case errors.Is(err, mux.ErrDraining):
		return refusal(CodeDraining, worker, node, err.Error(), err)
	case errors.Is(err, mux.ErrNoLink):
		return refusal(CodeNoWorker, worker, node, err.Error(), err)
	}
	return err // ErrClosed, a context's
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
