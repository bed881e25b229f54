package refplane

import (
	"context"
	"io"
	"sync"

	"github.com/laneway-ai/laneway/responseplane"
)

// maxBuffered bounds what a response keeps for a consumer that is slow, in bytes. There are no windows: past it the
// response is lost.
const maxBuffered = 16 << 20

// Response is one response at the frontend. One goroutine at a time may call NextBatch; the rest may be called by any.
// Always Close it.
type Response struct {
	f    *Frontend
	id   uint64
	peer *peer
	term []byte
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	kept    Records
	records uint64
	err     error // io.EOF after complete
	trailer []byte
	sink    func([][]byte, error) bool
	busy    bool // the sink is being called
	told    bool // the sink has had the end
	closed  bool
}

// Terms go into the request.
func (r *Response) Terms() []byte { return r.term }

// add takes a record that has come, false when there is no room for it.
func (r *Response) add(body []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.closed {
		return true
	}
	if r.kept.Bytes()+len(body) > maxBuffered {
		return false
	}
	r.kept.Add(body)
	r.records++
	return true
}

// end sets the end, once.
func (r *Response) end(err error, trailer []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err, r.trailer = err, trailer
		r.f.stats.end(err)
	}
}

// deliver tells the consumer that something has come: the sink is called, or the puller woken.
func (r *Response) deliver() {
	r.mu.Lock()
	for r.sink != nil && !r.busy && !r.closed {
		batch, err := r.take(), r.err
		if len(batch) == 0 && (err == nil || r.told) {
			r.mu.Unlock()
			return
		}
		r.told = err != nil
		r.busy = true
		sink := r.sink
		r.mu.Unlock()
		r.f.stats.sinkCalls.Add(1)
		goOn := sink(batch, err)
		r.mu.Lock()
		r.busy = false
		if !goOn {
			r.sink = nil // pulled from now on
		}
	}
	sunk := r.sink != nil
	r.mu.Unlock()
	if sunk {
		return
	}
	select {
	case r.wake <- struct{}{}:
		r.f.stats.wakes.Add(1)
	default:
	}
}

// take returns what is there. Called with mu held, by NextBatch and around the sink's calls, never at the same time.
func (r *Response) take() [][]byte {
	r.kept.Take()
	return r.kept.Batch()
}

// NextBatch returns every record that is ready, at least one; it waits when none is. The slices are valid until the
// next call. io.EOF comes after a complete response only, a *responseplane.Error after any other end, ctx's error when
// ctx ends.
func (r *Response) NextBatch(ctx context.Context) ([][]byte, error) {
	for {
		r.mu.Lock()
		batch, err := r.take(), r.err
		r.mu.Unlock()
		if len(batch) > 0 {
			return batch, nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Wait waits for the first record or the end, and returns the error of an end that came before any record: io.EOF after
// a complete response.
func (r *Response) Wait(ctx context.Context) error {
	for {
		r.mu.Lock()
		any, err := r.records > 0, r.err
		r.mu.Unlock()
		if any || err != nil {
			if any {
				err = nil
			}
			return err
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Records is how many have come.
func (r *Response) Records() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records
}

// OnRecords gives the records to a function instead: one call at a time, in order, with the end in the last one, from
// the connection's reader. It must not wait. When it returns false the response is pulled from then on.
func (r *Response) OnRecords(sink func(records [][]byte, err error) bool) {
	r.mu.Lock()
	r.sink = sink
	r.mu.Unlock()
	r.deliver()
}

// Trailer is what the end carried; nil before it.
func (r *Response) Trailer() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trailer
}

// Stop asks the worker to finish.
func (r *Response) Stop() { r.f.stop(r) }

// Kill ends the response now, and asks the worker to finish.
func (r *Response) Kill() { r.Expire(responseplane.EndKilled, "killed by the caller") }

// Expire is Kill with another reason.
func (r *Response) Expire(kind responseplane.EndKind, text string) {
	r.end(&responseplane.Error{Kind: kind, Plane: r.f.cfg.Plane, Text: text}, nil)
	r.f.stop(r)
	r.deliver()
}

// Close gives the response back; one that has not ended is killed. Idempotent.
func (r *Response) Close() error {
	r.mu.Lock()
	closed, ended := r.closed, r.err != nil
	r.closed = true
	r.mu.Unlock()
	if closed {
		return nil
	}
	if !ended {
		r.f.stats.end(&responseplane.Error{Kind: responseplane.EndKilled})
		r.f.stop(r)
	}
	r.f.forget(r)
	return nil
}

// lost is the error of a response whose connection died.
func (f *Frontend) lost(text string, cause error) error {
	if cause != nil && cause != io.EOF {
		text += ": " + cause.Error()
	}
	return &responseplane.Error{Kind: responseplane.EndLost, Plane: f.cfg.Plane, Text: text}
}
