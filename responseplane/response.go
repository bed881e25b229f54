package responseplane

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux"
)

// Response is one response at the frontend. One goroutine at a time may call Next or NextBatch; the rest may be called
// by any. Always Close it.
type Response struct {
	in      *mux.InStream
	f       *Frontend
	node    NodeID
	name    string
	worker  *workerEntry    // nil when it was minted for an own request path
	open    *mux.OpenStream // nil unless it came of open terms
	retries int
	closed  atomic.Bool

	// Of Open: the request's id and deadline (zero = none), and whether the worker was held to account for the end.
	request  string
	deadline time.Time
	blamed   atomic.Bool
	tracked  *tracked // nil unless it is of Open
}

// Terms are what the request must carry to the worker: opaque, about 100 bytes. They must not be changed.
func (r *Response) Terms() []byte { return r.in.Terms() }

// Worker is the worker's id, "" for a response of Mint.
func (r *Response) Worker() string {
	if r.worker == nil {
		return ""
	}
	return r.worker.rec.ID
}

// Node is the worker's process, NodeName its name for people.
func (r *Response) Node() NodeID     { return r.node }
func (r *Response) NodeName() string { return r.name }

// Lane is the plane and index of the lane that carries the response; it can change when a lane dies.
func (r *Response) Lane() (plane string, lane int) { return r.in.Lane() }

// Retries is how many attempts came before this one.
func (r *Response) Retries() int { return r.retries }

// Next returns the next record, waiting for it. It is valid until the next call. io.EOF follows the last record of a
// complete response and of no other; every other end is an *Error. A ctx that ends returns its error and changes
// nothing: Stop, Kill or Close the response then. For a response with a sink see NextBatch.
func (r *Response) Next(ctx context.Context) ([]byte, error) {
	rec, err := r.in.Next(ctx)
	if rec == nil && err == nil {
		return nil, ErrSinkTakes
	}
	return rec, r.wrap(err)
}

// NextBatch returns all records that are ready, at least one, waiting when there is none: one wake for all of them.
// They are valid until the next call. With OnRecords it does not wait: ErrSinkTakes says that all that the sink left is
// read and that the sink has the response again.
func (r *Response) NextBatch(ctx context.Context) ([][]byte, error) {
	batch, err := r.in.NextBatch(ctx)
	if len(batch) == 0 && err == nil {
		return nil, ErrSinkTakes
	}
	return batch, r.wrap(err)
}

// OnRecords has the records given to sink, on the lane's reader, as they come: no goroutine is woken for them. sink is
// called once per read, in order, never twice at a time; records are valid during the call; it must not wait. The last
// call has the end: err is io.EOF for a complete response, else an *Error; before, it is nil. If sink returns false
// ("not now") the records stay, and NextBatch gives them and all later ones until it finds nothing. Set it before the
// terms are sent; a response of Open has a record already, which NextBatch gives.
func (r *Response) OnRecords(sink func(records [][]byte, err error) bool) {
	r.in.OnRecords(sink, r.ended)
}

// Pass is a run of sink calls on one goroutine, one for each response that a read of a lane brought something for. With
// Pass.Defer the sinks do once for all what each would do for itself, such as a system call.
type Pass = mux.Pass

// OnPass is OnRecords for a sink that wants to know its pass.
func (r *Response) OnPass(sink func(pass *Pass, records [][]byte, err error) bool) {
	r.in.OnPass(sink, r.ended)
}

// Trailer is the trailer of the worker's END once the response has ended, else nil.
func (r *Response) Trailer() []byte {
	if end := r.in.End(); end != nil {
		return end.Trailer
	}
	return nil
}

// Stop asks the worker to finish its last output and complete; records go on until then.
func (r *Response) Stop() { r.in.Stop() }

// Kill ends the response now; it reaches the engine before the first record as well as after it.
func (r *Response) Kill() { r.in.Kill(mux.End{Type: mux.EndKilled, Text: "killed by the caller"}) }

// Close gives the response back and kills it if it has not ended. Idempotent.
func (r *Response) Close() error {
	first := r.closed.CompareAndSwap(false, true)
	if first && r.worker != nil {
		r.worker.open.Add(-1)
	}
	if r.open != nil {
		return r.open.Close()
	}
	err := r.in.Close()
	if first && r.tracked != nil {
		r.tracked.settle(nil)
		r.f.requests.end(r.tracked, nil)
	}
	return err
}

func (r *Response) ended(end *mux.End) error {
	if end.Type == mux.EndComplete {
		return io.EOF
	}
	plane, lane := r.in.Lane()
	err := fromEnd(end, r.Worker(), r.node, plane, lane)
	if why, bad := r.workersFault(end); bad && r.worker != nil && end.Records > 0 && r.blamed.CompareAndSwap(false,
		true) {
		r.f.blame(r.worker, why, r.request, err)
	}
	return err
}

// workersFault says whether a response that had records ended in a way that speaks against its worker. A request's own
// deadline does not.
func (r *Response) workersFault(end *mux.End) (why reason, bad bool) {
	switch end.Type {
	case mux.EndLost, mux.EndProtocol:
		return reasonLost, true
	case mux.EndDeadline:
		return reasonFailed, r.deadline.IsZero() || time.Until(r.deadline) > deadlineStep
	}
	return 0, false
}

// deadlineStep is how exactly deadlines are kept.
const deadlineStep = 300 * time.Millisecond

func (r *Response) wrap(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var end *mux.EndError
	if errors.As(err, &end) {
		return r.ended(&end.End)
	}
	return err
}
