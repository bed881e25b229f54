package httpbench

import (
	"context"
	"fmt"

	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
	"github.com/laneway-ai/laneway/responseplane"
)

// aloneRole is a process beside the arm in-process: the same engines under the same load, whose tokens go nowhere. What
// it uses is what the engines cost in the frontend's process, which is no part of the out path.
type aloneRole struct {
	*child
	engines *engines
}

func (r *aloneRole) start(context.Context) (message, error) {
	var err error
	r.engines, err = newEngines(r.cfg, func(int) {})
	return message{}, err
}

// load opens as many responses as the client does, of lengths that are spread as its first ones are.
func (r *aloneRole) load() error {
	l := r.cfg.Load
	for i := range l.Streams {
		if err := r.next(i, 0, 1+i*l.OSL/l.Streams); err != nil {
			return err
		}
	}
	return nil
}

// next opens a response of a place of the closed loop.
func (r *aloneRole) next(place, turn, tokens int) error {
	payload, err := mockproto.Request{ID: fmt.Sprintf("alone-%d-%d", place, turn), Model: model,
		Kind: mockproto.KindChat, PromptTokens: r.cfg.Load.ISL, MaxTokens: tokens}.Encode()
	if err != nil {
		return err
	}
	return r.engines.submit(payload, func(int) mock.Writer { return &nowhere{role: r, place: place, turn: turn} })
}

func (r *aloneRole) finish() error {
	r.engines.stopping.Store(true)
	return nil
}

func (r *aloneRole) count(u *usage) {
	u.Tokens = r.engines.made.Load()
	r.engines.count(u)
}

func (r *aloneRole) totals() (totals, error) { return totals{Made: r.engines.made.Load()}, nil }

func (r *aloneRole) close() error {
	if r.engines == nil {
		return nil
	}
	return r.engines.close()
}

// nowhere is a response that nobody reads. Its end opens the next one.
type nowhere struct {
	role        *aloneRole
	place, turn int
}

func (*nowhere) TryPut([]byte) error              { return nil }
func (*nowhere) OnWritable(func())                {}
func (*nowhere) Err() error                       { return nil }
func (*nowhere) StopRequested() bool              { return false }
func (*nowhere) Fail(responseplane.Failure) error { return nil }

func (w *nowhere) PutComplete([]byte) error {
	if w.role.engines.stopping.Load() {
		return nil
	}
	if err := w.role.next(w.place, w.turn+1, w.role.cfg.Load.OSL); err != nil {
		_ = w.role.out.Send(message{Op: opFailed, Error: err.Error()}) // the parent gives up
	}
	return nil
}
