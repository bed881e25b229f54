package main

import (
	"context"
	"errors"
	"time"

	"github.com/laneway-ai/laneway/internal/httpfront"
	"github.com/laneway-ai/laneway/responseplane"
)

// planeBackend puts the response plane behind the HTTP side's interface.
type planeBackend struct {
	frontend *responseplane.Frontend
	timeout  time.Duration // of a whole request, 0 = none
}

func (b planeBackend) Models() []string { return b.frontend.Models() }
func (b planeBackend) Ready() error     { return b.frontend.Ready() }

func (b planeBackend) Open(ctx context.Context, c httpfront.Call) (httpfront.Stream, error) {
	if b.timeout > 0 {
		// The plane takes the deadline over when it mints, and keeps it at both ends; the context is for Open only.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.timeout)
		defer cancel()
	}
	r, err := b.frontend.Open(ctx, responseplane.Request{ID: c.ID, Model: c.Model, Payload: c.Payload,
		FirstRecordTimeout: c.FirstRecordTimeout, InactivityTimeout: c.InactivityTimeout, Trace: c.Trace.Open()})
	if err != nil {
		return nil, endError(err)
	}
	return planeStream{r}, nil
}

// planeStream is a Response whose errors are the HTTP side's.
type planeStream struct{ *responseplane.Response }

func (s planeStream) NextBatch(ctx context.Context) ([][]byte, error) {
	recs, err := s.Response.NextBatch(ctx)
	if err != nil {
		err = endError(err)
	}
	return recs, err
}

// OnRecords implements httpfront.SinkStream.
func (s planeStream) OnRecords(sink func([][]byte, error) bool) {
	s.Response.OnRecords(func(recs [][]byte, err error) bool {
		if err != nil {
			err = endError(err)
		}
		return sink(recs, err)
	})
}

// OnPass implements httpfront.PassStream.
func (s planeStream) OnPass(sink func(httpfront.Pass, [][]byte, error) bool) {
	s.Response.OnPass(func(pass *responseplane.Pass, recs [][]byte, err error) bool {
		if err != nil {
			err = endError(err)
		}
		return sink(pass, recs, err)
	})
}

var _ httpfront.PassStream = planeStream{}

// NodeName is the worker process's name, or its identity when it has none.
func (s planeStream) NodeName() string {
	if n := s.Response.NodeName(); n != "" {
		return n
	}
	return s.Response.Node().String()
}

func (s planeStream) Plane() string {
	plane, _ := s.Response.Lane()
	return plane
}

func (s planeStream) Lane() int {
	_, lane := s.Response.Lane()
	return lane
}

// endError translates how a response ended. io.EOF and a context's error stay what they are.
func endError(err error) error {
	var e *responseplane.Error
	if !errors.As(err, &e) {
		return err
	}
	out := &httpfront.EndError{Text: e.Text, Worker: e.Worker, Err: e}
	switch e.Kind {
	case responseplane.EndFailed:
		out.End = httpfront.EndFailed
	case responseplane.EndStopped:
		out.End = httpfront.EndStopped
	case responseplane.EndKilled:
		out.End = httpfront.EndKilled
	case responseplane.EndRefused:
		out.End = httpfront.EndRefused
	case responseplane.EndDeadline:
		out.End = httpfront.EndDeadline
	case responseplane.EndLost:
		out.End = httpfront.EndLost
	default: // a kind that this version does not know is no answer that it can read
		out.End = httpfront.EndProtocol
	}
	switch e.Code {
	case responseplane.CodeInternal:
		out.Code = httpfront.CodeInternal
	case responseplane.CodeValidation:
		out.Code = httpfront.CodeValidation
	case responseplane.CodeNotFound:
		out.Code = httpfront.CodeNotFound
	case responseplane.CodeBusy:
		out.Code = httpfront.CodeBusy
	case responseplane.CodeDraining:
		out.Code = httpfront.CodeDraining
	case responseplane.CodeNoWorker:
		out.Code = httpfront.CodeNoWorker
	case responseplane.CodeUnsupported:
		out.Code = httpfront.CodeUnsupported
	case responseplane.CodeBadRequest:
		out.Code = httpfront.CodeBadRequest
	case responseplane.CodeTooLarge:
		out.Code = httpfront.CodeTooLarge
	}
	return out
}
