package httpbench

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
	"github.com/laneway-ai/laneway/responseplane"
)

// model is the one that every worker serves.
const model = "bench"

// engines are those of one process. Requests go to them in turn.
type engines struct {
	all      []*mock.Engine
	next     atomic.Uint64
	made     atomic.Uint64 // tokens that a plane took
	passes   atomic.Uint64
	missed   atomic.Uint64
	stopping atomic.Bool // every response ends at the next pass
}

// newEngines starts them. flush is called at the end of an engine's pass.
func newEngines(cfg childConfig, flush func(engine int)) (*engines, error) {
	e := &engines{}
	n := cfg.engines()
	for i := range n {
		first := cfg.Load.FirstToken
		if first == 0 {
			first = -1 // the engine's word for none
		}
		// Any engine can take everything, so that an uneven share refuses nobody.
		one, err := mock.Start(mock.Config{Index: i, Count: n, Seed: uint64(cfg.Index), TimeToFirstToken: first,
			InterTokenLatency: cfg.Load.Interval,
			MaxNumSeqs:        cfg.Load.Streams + 1, TokenBytes: cfg.Load.TokenBytes, Flush: func() { flush(i) },
			Observer: e})
		if err != nil {
			return e, errors.Join(err, e.close())
		}
		e.all = append(e.all, one)
	}
	return e, nil
}

// submit gives a request to the next engine. writer makes the response's end for it.
func (e *engines) submit(payload []byte, writer func(engine int) mock.Writer) error {
	req, err := mockproto.DecodeRequest(payload)
	if err != nil {
		return err
	}
	i := int((e.next.Add(1) - 1) % uint64(len(e.all)))
	return e.all[i].Submit(req, &counted{Writer: writer(i), e: e})
}

func (e *engines) count(u *usage) { u.Passes, u.Missed = e.passes.Load(), e.missed.Load() }

func (e *engines) close() error {
	var errs []error
	for _, one := range e.all {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// counted counts what the plane took, and ends the response once the load is over.
type counted struct {
	mock.Writer
	e *engines
}

func (c *counted) TryPut(rec []byte) error {
	err := c.Writer.TryPut(rec)
	if err == nil {
		c.e.made.Add(1)
	}
	return err
}

func (c *counted) StopRequested() bool { return c.e.stopping.Load() || c.Writer.StopRequested() }

// peerWriter is a peer's response as an engine wants it.
type peerWriter struct{ planebench.PeerWriter }

func (peerWriter) StopRequested() bool { return false }

// errNoFailure is why a peer's response that fails just never ends: peers cannot say it. Engines fail a response only
// when their process ends in the middle of a run.
var errNoFailure = errors.New("httpbench: a peer cannot tell of a failure")

func (peerWriter) Fail(responseplane.Failure) error { return errNoFailure }

// Of mock.Observer.

func (e *engines) FirstToken(time.Duration) {}

func (e *engines) Pass(_ time.Duration, skipped int) {
	e.passes.Add(1)
	e.missed.Add(uint64(skipped))
}

func (e *engines) Cancelled()                {}
func (e *engines) Refused(mock.RefuseReason) {}
func (e *engines) Injected(mock.FailureType) {}
func (e *engines) Held()                     {}
