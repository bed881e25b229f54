// Package planebackend puts the response plane behind the HTTP side of a frontend.
package planebackend

import (
	"context"
	"errors"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/responseplane"
)

// Backend is a frontend of the response plane as the HTTP side uses it.
type Backend struct {
	Frontend *responseplane.Frontend
	Timeout  time.Duration // of a whole request, 0 = none
}

var _ frontend.Backend = Backend{}

// Models implements frontend.Backend.
func (b Backend) Models() []string { return b.Frontend.Models() }

// Ready implements frontend.Backend.
func (b Backend) Ready() error { return b.Frontend.Ready() }

// Open implements frontend.Backend.
func (b Backend) Open(ctx context.Context, c frontend.Call) (frontend.Stream, error) {
	if b.Timeout > 0 {
		// The plane takes the deadline over when it mints, and keeps it at both ends; the context is for Open only.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.Timeout)
		defer cancel()
	}
	r, err := b.Frontend.Open(ctx, responseplane.Request{ID: c.ID, ClientID: c.ClientID, Model: c.Model,
		Payload:            c.Payload,
		FirstRecordTimeout: c.FirstRecordTimeout, InactivityTimeout: c.InactivityTimeout, Trace: c.Trace.Open()})
	if err != nil {
		return nil, EndError(err)
	}
	return stream{r}, nil
}

// stream is a Response whose errors are the HTTP side's.
type stream struct{ *responseplane.Response }

func (s stream) NextBatch(ctx context.Context) ([][]byte, error) {
	recs, err := s.Response.NextBatch(ctx)
	if err == responseplane.ErrSinkTakes {
		return nil, nil
	}
	if err != nil {
		err = EndError(err)
	}
	return recs, err
}

// OnRecords implements frontend.SinkStream.
func (s stream) OnRecords(sink func([][]byte, error) bool) {
	s.Response.OnRecords(func(recs [][]byte, err error) bool {
		if err != nil {
			err = EndError(err)
		}
		return sink(recs, err)
	})
}

// OnPass implements frontend.PassStream.
func (s stream) OnPass(sink func(frontend.Pass, [][]byte, error) bool) {
	s.Response.OnPass(func(pass *responseplane.Pass, recs [][]byte, err error) bool {
		if err != nil {
			err = EndError(err)
		}
		return sink(pass, recs, err)
	})
}

var _ frontend.PassStream = stream{}

// NodeName is the worker process's name, or its identity when it has none.
func (s stream) NodeName() string {
	if n := s.Response.NodeName(); n != "" {
		return n
	}
	return s.Response.Node().String()
}

func (s stream) Plane() string {
	plane, _ := s.Response.Lane()
	return plane
}

func (s stream) Lane() int {
	_, lane := s.Response.Lane()
	return lane
}

// EndError translates how a response ended. io.EOF and a context's error stay what they are.
func EndError(err error) error {
	var e *responseplane.Error
	if !errors.As(err, &e) {
		return err
	}
	out := &frontend.EndError{Text: e.Text, Worker: e.Worker, Err: e}
	switch e.Kind {
	case responseplane.EndFailed:
		out.End = frontend.EndFailed
	case responseplane.EndStopped:
		out.End = frontend.EndStopped
	case responseplane.EndKilled:
		out.End = frontend.EndKilled
	case responseplane.EndRefused:
		out.End = frontend.EndRefused
	case responseplane.EndDeadline:
		out.End = frontend.EndDeadline
	case responseplane.EndLost:
		out.End = frontend.EndLost
	default: // a kind that this version does not know is no answer that it can read
		out.End = frontend.EndProtocol
	}
	switch e.Code {
	case responseplane.CodeInternal:
		out.Code = frontend.CodeInternal
	case responseplane.CodeValidation:
		out.Code = frontend.CodeValidation
	case responseplane.CodeNotFound:
		out.Code = frontend.CodeNotFound
	case responseplane.CodeBusy:
		out.Code = frontend.CodeBusy
	case responseplane.CodeDraining:
		out.Code = frontend.CodeDraining
	case responseplane.CodeNoWorker:
		out.Code = frontend.CodeNoWorker
	case responseplane.CodeUnsupported:
		out.Code = frontend.CodeUnsupported
	case responseplane.CodeBadRequest:
		out.Code = frontend.CodeBadRequest
	case responseplane.CodeTooLarge:
		out.Code = frontend.CodeTooLarge
	}
	return out
}
