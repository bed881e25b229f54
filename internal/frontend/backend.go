package frontend

import (
	"context"
	"fmt"
	"time"

	"github.com/laneway-ai/laneway/internal/program/tracing"
)

// Backend is the response plane as this package uses it. Methods may be called concurrently.
type Backend interface {
	// Open finds a worker and returns when the first record is there, or when the response ended as complete without
	// one. Every other end is an *EndError. When ctx ends first, the attempt is killed and an error returned.
	Open(ctx context.Context, c Call) (Stream, error)
	// Models are the models that can be asked for now, sorted.
	Models() []string
	// Ready is nil when requests can be served.
	Ready() error
}

// Call is one request to the backend.
type Call struct {
	ID       string // unique
	ClientID string // what the client calls it, which others may be called too; may be empty
	Model    string
	Payload  []byte
	// FirstRecordTimeout and InactivityTimeout end the response as "deadline"; 0 = none.
	FirstRecordTimeout, InactivityTimeout time.Duration
	// Trace is told of the way to the worker; nil = the request is not traced.
	Trace *tracing.Request
}

// Stream is one open response. NextBatch, Trailer and Close belong to one goroutine.
type Stream interface {
	// NextBatch returns every record that is ready, at least one; it waits when none is. The slices are valid until the
	// next call. io.EOF comes after a complete response only, an *EndError after any other end, ctx's error when ctx
	// ends; the caller may then call again with another context.
	NextBatch(ctx context.Context) ([][]byte, error)
	// Trailer is what the end carried. It is there after io.EOF.
	Trailer() []byte
	// Stop lets the worker finish its last output, Kill ends the response now. Both are idempotent.
	Stop()
	Kill()
	// Close gives the response back and kills it when it has not ended. Idempotent.
	Close() error
	// Worker, NodeName, Plane and Lane say where the records come from; Retries how many attempts failed before this
	// one.
	Worker() string
	NodeName() string
	Plane() string
	Lane() int
	Retries() int
}

// Ends of an EndError, and their codes.
const (
	EndFailed   = "failed"
	EndRefused  = "refused"
	EndDeadline = "deadline"
	EndLost     = "lost"
	EndStopped  = "stopped"
	EndKilled   = "killed"
	EndProtocol = "protocol"

	CodeInternal    = "internal" // of EndFailed
	CodeValidation  = "validation"
	CodeNotFound    = "not_found"
	CodeBusy        = "busy" // of EndRefused
	CodeDraining    = "draining"
	CodeNoWorker    = "no_worker"
	CodeUnsupported = "unsupported"
	CodeBadRequest  = "bad_request"
	CodeTooLarge    = "too_large" // for the way to the worker
)

// EndError says that a response ended in another way than complete.
type EndError struct {
	End    string // one of the End constants
	Code   string // one of the Code constants, or empty
	Text   string // the reason in words; may be empty
	Worker string // the worker that it was; empty when there was none
	Err    error  // the cause, for the log; may be nil
}

func (e *EndError) Error() string {
	s := e.End
	if e.Code != "" {
		s += " (" + e.Code + ")"
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.Worker != "" {
		s = fmt.Sprintf("worker %s: %s", e.Worker, s)
	}
	return s
}

func (e *EndError) Unwrap() error { return e.Err }
