package main

import (
	"errors"
	"fmt"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/program/tracing"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
)

// taker takes the requests of one engine.
type taker struct {
	engine  *mock.Engine
	model   string
	metrics *metrics
	worker  string
	tracer  *tracing.Tracer // nil = none
}

// take answers a request: it runs or waits, or the reply says why not. It does not block.
func (t *taker) take(req discovery.Request, w mock.Writer) discovery.Reply {
	r, err := mockproto.DecodeRequest(req.Payload)
	var version *mockproto.VersionError
	switch {
	case errors.As(err, &version):
		return t.refuse(discovery.Unsupported, refusedUnsupported, err)
	case err != nil:
		return t.refuse(discovery.BadRequest, refusedBadRequest, err)
	case r.Model != t.model:
		return t.refuse(discovery.BadRequest, refusedBadRequest, fmt.Errorf("this worker serves the model %q, not %q",
			t.model, r.Model))
	}
	w = t.tracer.Work(w, req.Header, t.worker, t.model, req.ID)
	err = t.engine.Submit(r, w) // counts a refusal itself
	if err != nil {
		tracing.Refused(w, err.Error())
	}
	var refused *mock.RefusedError
	switch {
	case err == nil:
		return discovery.Reply{Answer: discovery.Accepted}
	case !errors.As(err, &refused):
		return discovery.Reply{Answer: discovery.BadRequest, Reason: err.Error()}
	case refused.Reason == mock.RefusedTooLong:
		return discovery.Reply{Answer: discovery.BadRequest, Reason: err.Error()}
	case refused.Reason == mock.RefusedDraining:
		return discovery.Reply{Answer: discovery.Draining, Reason: err.Error()}
	default:
		return discovery.Reply{Answer: discovery.Busy, Reason: err.Error()}
	}
}

func (t *taker) refuse(a discovery.Answer, reason mock.RefuseReason, err error) discovery.Reply {
	t.metrics.Refused(reason)
	return discovery.Reply{Answer: a, Reason: err.Error()}
}
