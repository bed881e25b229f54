package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/laneway-ai/laneway/responseplane"
)

// Request is the trace of one request at a frontend. It belongs to the request's goroutine. A nil Request traces
// nothing.
type Request struct {
	t     *Tracer
	ctx   context.Context // of the request's span
	span  trace.Span
	step  trace.Span // route, deliver, first record or stream
	inner context.Context
}

// Request begins the span of an HTTP request, in the trace that its header names, if any. client is what the client
// calls the request; may be empty. nil when it is not traced.
func (t *Tracer) Request(h http.Header, route, id, client string) *Request {
	if t == nil {
		return nil
	}
	ctx := t.context.Extract(context.Background(), propagation.HeaderCarrier(h))
	ctx, span := t.tracer.Start(ctx, "POST "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", http.MethodPost), attribute.String("http.route", route),
		attribute.String("laneway.request_id", id)))
	if !span.IsRecording() {
		return nil
	}
	if client != "" {
		span.SetAttributes(attribute.String("laneway.client_request_id", client))
	}
	return &Request{t: t, ctx: ctx, span: span}
}

// ID is the trace's id, for logs; empty without one.
func (r *Request) ID() string {
	if r == nil {
		return ""
	}
	return r.span.SpanContext().TraceID().String()
}

// Model notes the model that was asked for.
func (r *Request) Model(name string) {
	if r != nil {
		r.span.SetAttributes(attribute.String("gen_ai.request.model", name))
	}
}

func (r *Request) begin(name string, kind trace.SpanKind, attrs ...attribute.KeyValue) {
	r.inner, r.step = r.t.tracer.Start(r.ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
}

func (r *Request) end(err error, attrs ...attribute.KeyValue) {
	if r.step == nil {
		return
	}
	r.step.SetAttributes(attrs...)
	if err != nil {
		r.step.SetStatus(codes.Error, err.Error())
	}
	r.step.End()
	r.step = nil
}

// Open has the steps of an Open traced.
func (r *Request) Open() *responseplane.OpenTrace {
	if r == nil {
		return nil
	}
	return &responseplane.OpenTrace{
		Route: func(n int) { r.begin("route", trace.SpanKindInternal, attribute.Int("laneway.attempt", n)) },
		Routed: func(worker string, err error) {
			r.end(err, attribute.String("laneway.worker", worker))
		},
		Deliver: func(header map[string]string) {
			r.begin("deliver", trace.SpanKindClient)
			r.t.context.Inject(r.inner, propagation.MapCarrier(header))
		},
		Delivered: func(err error) {
			r.end(err)
			if err == nil {
				r.begin("first record", trace.SpanKindInternal)
			}
		},
		FirstRecord: func(err error) { r.end(err) },
	}
}

// Stream begins the span of the records that follow, once Open has succeeded.
func (r *Request) Stream(worker, process, plane string, lane int) {
	if r == nil {
		return
	}
	r.begin("stream", trace.SpanKindInternal, attribute.String("laneway.worker", worker),
		attribute.String("laneway.process", process),
		attribute.String("laneway.plane", plane), attribute.Int("laneway.lane", lane))
}

// End ends the request's spans. errorType is the metrics' label, empty for a complete response.
func (r *Request) End(status, records int, errorType string) {
	if r == nil {
		return
	}
	tokens := attribute.Int("gen_ai.usage.output_tokens", records)
	if r.step != nil {
		r.step.SetAttributes(tokens)
	}
	if errorType != "" {
		r.span.SetAttributes(attribute.String("error.type", errorType))
		r.span.SetStatus(codes.Error, errorType)
		if r.step != nil {
			r.step.SetStatus(codes.Error, errorType)
		}
	}
	r.end(nil)
	r.span.SetAttributes(attribute.Int("http.response.status_code", status), tokens)
	r.span.End()
}
