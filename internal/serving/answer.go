package serving

import (
	"context"
	"errors"

	"github.com/laneway-ai/laneway/responseplane"
)

// Writer is what an Answer is written to: a *responseplane.Writer.
type Writer interface {
	Put(ctx context.Context, rec []byte) error
	TryPut(rec []byte) error
	PutComplete(trailer []byte) error
	Fail(f responseplane.Failure) error
}

var _ Writer = (*responseplane.Writer)(nil)

// Errors of an Answer that is written in the wrong order.
var (
	ErrNoHead   = errors.New("serving: an answer begins with its head")
	ErrTwoHeads = errors.New("serving: an answer has one head")
	ErrMixed    = errors.New("serving: an answer is a stream of events or a body")
	ErrAfter    = errors.New("serving: an event behind the last")
)

// Answer is one answer at the worker: the head, then events or pieces of a body, then an end. One goroutine at a time
// writes it. What it puts is sent by a Flush of the Writer or of its Worker: one for all that is ready.
//
// The head waits for the first event or piece and travels in its record: until then the frontend may turn elsewhere.
type Answer struct {
	// Trailer is what the end will carry. Event notes usage and finish reasons in it.
	Trailer Trailer

	w       Writer
	dialect Dialect
	enc     Encoder
	buf     []byte // one record, beginning with the head while that waits
	head    int    // bytes of the head in buf
	have    bool   // Head was called
	begun   bool   // a record was put
	events  bool
	pieces  bool
	last    bool // the engine's last event was put
	failed  bool // an event that says so was put
}

// NewAnswer begins an answer in the dialect of the request's path. Without delta each event goes whole.
func NewAnswer(w Writer, d Dialect, delta bool) *Answer {
	return &Answer{w: w, dialect: d, enc: Encoder{Off: !delta}}
}

// Head sets status and headers (FilterOut's). It sends nothing yet.
func (a *Answer) Head(h Head) error {
	if a.have {
		return ErrTwoHeads
	}
	if err := h.check(); err != nil {
		return err
	}
	a.have = true
	a.buf = appendHead(append(a.buf[:0], byte(KindHead)), &h)
	a.head = len(a.buf)
	return nil
}

// Event puts an event: all its lines as the engine wrote them, without the blank one. It waits while the window is
// full. Comments before the first event are dropped: the frontend keeps the client's connection alive itself.
func (a *Answer) Event(ctx context.Context, event []byte) (Class, error) {
	return a.event(event, func(rec []byte) error { return a.w.Put(ctx, rec) })
}

// TryEvent is Event that does not wait: after responseplane.ErrWindowFull the same event may be tried again.
func (a *Answer) TryEvent(event []byte) (Class, error) { return a.event(event, a.w.TryPut) }

func (a *Answer) event(event []byte, put func([]byte) error) (Class, error) {
	c := a.dialect.Classify(event)
	switch {
	case !a.have:
		return c, ErrNoHead
	case a.pieces:
		return c, ErrMixed
	case c == ClassComment && (!a.begun || a.last):
		return c, nil
	case a.last || a.failed && c == ClassEvent:
		return c, ErrAfter
	}
	if c == ClassEvent || c == ClassComment {
		a.buf = a.enc.Append(a.buf[:a.head], event)
	} else {
		a.buf = append(append(a.buf[:a.head], byte(KindLast)), event...)
	}
	if err := put(a.buf); err != nil {
		return c, err
	}
	a.sent()
	a.events = true
	switch c {
	case ClassEvent, ClassComment:
		a.enc.Sent(event)
	case ClassLast:
		a.last = true
	case ClassError:
		a.failed = true
	}
	if c == ClassEvent || c == ClassLast {
		a.observe(event)
	}
	return c, nil
}

func (a *Answer) observe(event []byte) {
	if mentions(event, `"usage":`) || mentions(event, `_reason":`) {
		_, data, _ := EventFields(event)
		a.Trailer.Observe(data)
	}
}

// sent says that a record, and the head with it, has gone.
func (a *Answer) sent() { a.begun, a.head = true, 0 }

// Body puts a piece of an answer that is no event stream. It waits while the window is full.
func (a *Answer) Body(ctx context.Context, piece []byte) error {
	switch {
	case !a.have:
		return ErrNoHead
	case a.events:
		return ErrMixed
	case len(piece) == 0:
		return nil
	}
	a.buf = append(append(a.buf[:a.head], byte(KindBody)), piece...)
	if err := a.w.Put(ctx, a.buf); err != nil {
		return err
	}
	a.sent()
	a.pieces = true
	return nil
}

// Begun says whether the frontend may have seen something of the answer: it cannot be refused any more.
func (a *Answer) Begun() bool { return a.begun }

// Ended says whether the stream has ended as its API says, so that Complete is true of it. A stream in no known dialect
// ends with the engine's body.
func (a *Answer) Ended() bool { return !a.failed && (a.last || a.dialect == DialectOther) }

// Complete ends an answer that the engine ended as its API says. A head without anything behind it goes now. An answer
// with an event in it that says that it failed, or a stream without its last event, ends as failed instead.
func (a *Answer) Complete(ctx context.Context) error {
	switch {
	case !a.have:
		return a.Fail(responseplane.Failure{Text: "the engine gave no answer", Retryable: true})
	case a.failed:
		return a.Fail(responseplane.Failure{Text: "the engine said that the answer failed"})
	case a.events && !a.Ended():
		return a.Fail(responseplane.Failure{Text: "the engine's stream ended without its last event"})
	}
	if !a.begun {
		if err := a.w.Put(ctx, a.buf[:a.head]); err != nil {
			return err
		}
		a.sent()
	}
	return a.w.PutComplete(a.Trailer.Append(nil))
}

// Fail ends an answer that broke, with the trailer of what was seen.
func (a *Answer) Fail(f responseplane.Failure) error {
	if f.Trailer == nil {
		f.Trailer = a.Trailer.Append(nil)
	}
	f.Retryable = f.Retryable && !a.begun
	return a.w.Fail(f)
}

// Refuse gives an engine's 429 or 503 back in the place of an answer: it is tried elsewhere, and if nobody does
// better the client gets it as the engine said it. Of an answer that has begun it is a failure like any other.
func (a *Answer) Refuse(h Head, body []byte) error {
	if !a.begun {
		a.Trailer.Answer = &EngineAnswer{Head: h, Body: body}
	}
	return a.Fail(responseplane.Failure{Text: "the engine refused the request", Retryable: true})
}
