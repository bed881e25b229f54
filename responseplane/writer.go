package responseplane

import (
	"context"
	"errors"
	"time"

	"github.com/laneway-ai/laneway/mux"
)

// Writer is one response at the worker. Its writing methods may be called by one goroutine at a time; Flush, Err, Done,
// Stopping and OnWritable by any. A Writer must come to an end: Complete, Fail, or Err not nil.
type Writer struct {
	out    *mux.OutStream
	w      *Worker
	worker string
}

// Put appends a record and waits while the window is full; what is queued is flushed before it waits. It wakes nobody:
// a later Flush, of this Writer or of the Worker, sends the record. rec is copied. Records over half the window go in
// fragments; a ctx that ends inside such a record fails the response.
func (w *Writer) Put(ctx context.Context, rec []byte) error { return w.wrap(w.out.Put(ctx, rec)) }

// TryPut is Put that does not wait: ErrWindowFull says that the window is full, and the function given to OnWritable is
// called once there is room. An engine's pass is TryPut for each of its responses and one Worker.Flush.
func (w *Writer) TryPut(rec []byte) error { return w.wrap(w.out.TryPut(rec)) }

// Send is Put and Flush.
func (w *Writer) Send(ctx context.Context, rec []byte) error { return w.wrap(w.out.Send(ctx, rec)) }

// TrySend is TryPut and Flush.
func (w *Writer) TrySend(rec []byte) error { return w.wrap(w.out.TrySend(rec)) }

// Flush has what this response's lane holds written.
func (w *Writer) Flush() { w.out.Flush() }

// OnWritable sets what is called, once after each ErrWindowFull, when there is room again or the response has ended. It
// runs on a lane's reader and must not block.
func (w *Writer) OnWritable(fn func()) { w.out.OnWritable(fn) }

// Done is closed when the response was killed or lost, or its deadline has passed; Err then says which.
func (w *Writer) Done() <-chan struct{} { return w.out.Done() }

// StopRequested says whether the consumer asked to finish the last output and Complete.
func (w *Writer) StopRequested() bool { return w.out.Stopping() }

// Err is nil while records are wanted, then an *Error. It is cheap: poll it each pass.
func (w *Writer) Err() error { return w.wrap(w.out.Err()) }

// Complete ends the response: all records were written. The trailer, at most 16 KiB, reaches Response.Trailer.
func (w *Writer) Complete(trailer []byte) error { return w.wrap(w.out.Complete(trailer)) }

// PutComplete is Complete without the flush: in an engine's pass the end travels in the pass's one write. A later
// Flush, of this Writer or of the Worker, sends it.
func (w *Writer) PutComplete(trailer []byte) error {
	return w.wrap(w.out.PutEnd(mux.End{Type: mux.EndComplete, Trailer: trailer}))
}

// EndStopped ends the response as the consumer's Stop asked, with its output cut short: Response ends with ErrCanceled
// there. A worker that finishes its last output after Stop uses Complete.
func (w *Writer) EndStopped(trailer []byte) error {
	return w.wrap(w.out.Fail(mux.End{Type: mux.EndStopped, Trailer: trailer}))
}

// Fail ends the response with an error that the caller sees.
func (w *Writer) Fail(f Failure) error {
	if f.Code == CodeNone {
		f.Code = CodeInternal
	}
	return w.wrap(w.out.Fail(mux.End{Type: mux.EndFailed, Code: uint16(f.Code), Retryable: f.Retryable, Text: f.Text,
		Trailer: f.Trailer}))
}

// Deadline is when the frontend gives the request up, by this process's clock; false when there is none.
func (w *Writer) Deadline() (time.Time, bool) { return w.out.Deadline() }

// wrap makes the mux's end of a stream an *Error.
func (w *Writer) wrap(err error) error {
	if err == nil {
		return nil
	}
	var end *mux.EndError
	if errors.As(err, &end) {
		return fromEnd(&end.End, w.worker, w.w.cfg.Identity.ID, "", 0)
	}
	return err
}

// fromEnd translates an end that is not complete.
func fromEnd(end *mux.End, worker string, node NodeID, plane string, lane int) *Error {
	return &Error{Kind: EndKind(end.Type), Code: Code(end.Code), Text: end.Text, Worker: worker, Node: node,
		Plane: plane, Lane: lane,
		Records: end.Records, Trailer: end.Trailer, retry: end.Retryable}
}
