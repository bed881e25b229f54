package tracing

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/laneway-ai/laneway/responseplane"
)

// Writer is what an engine needs of a response: a *responseplane.Writer, what traces it, or a scripted one in tests.
// The engine calls it from one goroutine.
type Writer interface {
	// TryPut takes a record, which it copies, or says responseplane.ErrWindowFull.
	TryPut(rec []byte) error
	// OnWritable sets what is called after each ErrWindowFull, once, when there is room again or the response has
	// ended.
	OnWritable(fn func())
	// Err is nil while records are wanted.
	Err() error
	// StopRequested says whether the response is to end early.
	StopRequested() bool
	// PutComplete and Fail end the response.
	PutComplete(trailer []byte) error
	Fail(f responseplane.Failure) error
}

var _ Writer = (*responseplane.Writer)(nil)

// Work is the trace of one request at a worker: it is the Writer that the engine gets, and looks at what goes through
// it. The span begins when the request has come and ends with the response, however that ends.
type Work struct {
	Writer
	span    trace.Span
	records int
	ended   atomic.Bool
}

// Work returns a writer for a request in the trace that its header names. Without a trace it is w.
func (t *Tracer) Work(w Writer, header map[string]string, worker, model, id string) Writer {
	if t == nil || len(header) == 0 {
		return w
	}
	ctx := t.context.Extract(context.Background(), propagation.MapCarrier(header))
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return w
	}
	_, span := t.tracer.Start(ctx, "generate", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("laneway.worker", worker), attribute.String("laneway.request_id", id),
		attribute.String("gen_ai.request.model", model)))
	return &Work{Writer: w, span: span}
}

// Refused ends the trace of a request that the engine did not take.
func Refused(w Writer, reason string) {
	if k, ok := w.(*Work); ok {
		k.end(reason)
	}
}

// TryPut implements Writer.
func (k *Work) TryPut(rec []byte) error {
	err := k.Writer.TryPut(rec)
	switch {
	case err == nil:
		if k.records++; k.records == 1 {
			k.span.AddEvent("first token", trace.WithTimestamp(time.Now()))
		}
	case !errors.Is(err, responseplane.ErrWindowFull):
		k.end(err.Error())
	}
	return err
}

// Err implements Writer. An engine that is told of an error drops the request.
func (k *Work) Err() error {
	err := k.Writer.Err()
	if err != nil {
		k.end(err.Error())
	}
	return err
}

// PutComplete implements Writer.
func (k *Work) PutComplete(trailer []byte) error {
	err := k.Writer.PutComplete(trailer)
	if err != nil {
		k.end(err.Error())
		return err
	}
	k.end("")
	return nil
}

// Fail implements Writer.
func (k *Work) Fail(f responseplane.Failure) error {
	k.end(f.Text)
	return k.Writer.Fail(f)
}

func (k *Work) end(failure string) {
	if k.ended.Swap(true) {
		return
	}
	k.span.SetAttributes(attribute.Int("gen_ai.usage.output_tokens", k.records))
	if failure != "" {
		k.span.SetStatus(codes.Error, failure)
	}
	k.span.End()
}
