package discovery

import (
	"context"
	"errors"
	"fmt"
)

// Registry knows which workers are there. Methods may be called concurrently.
type Registry interface {
	// Register puts the workers of one process into the registry and keeps them there: a lost lease is granted again
	// and the keys are put back, with backoff. It returns once they are visible to others, or with an error; ctx bounds
	// that wait only. One call makes one lease, however many workers it names. A node may register a worker again to
	// change its record; withdrawing the earlier registration then takes nothing out.
	Register(ctx context.Context, workers []Worker) (Registration, error)

	// Watch reports the workers that are there, then every change. The first events carry the present state, closed by
	// one event of kind Synced. A broken watch is resumed inside and only differences are emitted. A consumer that is
	// slow gets the latest state of each worker, not each one in between. The channel is closed when ctx ends or the
	// registry is closed; the last event then is of kind Closed, with the reason in Err: ctx's cause or ErrClosed.
	// Records in events share memory; do not change them.
	Watch(ctx context.Context) (<-chan Event, error)

	// Close ends registrations (their workers vanish at once) and watches, and joins its goroutines. Idempotent.
	Close() error
}

// Registration is the workers of one process in a registry.
type Registration interface {
	// Withdraw takes the workers out of the registry at once; established streams do not care. Idempotent.
	Withdraw(ctx context.Context) error
	// Err says what endangers the records at this moment, such as a registry that does not answer. It is nil while they
	// are in place, and after Withdraw.
	Err() error
}

// EventKind says what an Event tells.
type EventKind int

const (
	// Put: the worker is there, new or changed.
	Put EventKind = iota + 1
	// Delete: the worker's record has gone. That stops routing to it, nothing else.
	Delete
	// Synced: all that was there when the watch began has been reported.
	Synced
	// Invalid: a record does not hold (Err is a *RecordError). An earlier good one of the same worker stays in force.
	Invalid
	// Closed: the watch has ended; Err says why. Nothing follows.
	Closed
)

func (k EventKind) String() string {
	switch k {
	case Put:
		return "put"
	case Delete:
		return "delete"
	case Synced:
		return "synced"
	case Invalid:
		return "invalid"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("EventKind(%d)", int(k))
}

// Event is one change. Worker is whole for Put and has only its ID for Delete and Invalid; an Invalid without an ID is
// about the source as a whole, such as a file that cannot be read.
type Event struct {
	Kind   EventKind
	Worker Worker
	Err    error
}

// Request is what a deliverer carries to a worker. The payload is the embedding frontend's business.
type Request struct {
	ID      string // request id, for logs and metrics at both ends
	Terms   []byte // opaque: where the response goes (responseplane)
	Payload []byte
	// Header is carried along (trace context and the like). May be nil.
	Header map[string]string
}

// Answer is a worker's acknowledgement, given before the work.
type Answer int

const (
	// Accepted: the worker will run it, or has queued it.
	Accepted Answer = iota + 1
	// Busy: running and waiting places are taken. Another worker may have one.
	Busy
	// Draining: the worker takes nothing new.
	Draining
	// Unsupported: the terms' or the request's version is not one that the worker reads.
	Unsupported
	// BadRequest: the worker cannot make sense of it; another one could not either.
	BadRequest
	// Stale: the terms are not for this life of the worker's process, or name a link that it does not have. Minted
	// again, they may do.
	Stale
)

func (a Answer) String() string {
	switch a {
	case Accepted:
		return "accepted"
	case Busy:
		return "busy"
	case Draining:
		return "draining"
	case Unsupported:
		return "unsupported"
	case BadRequest:
		return "bad request"
	case Stale:
		return "stale"
	}
	return fmt.Sprintf("Answer(%d)", int(a))
}

// Reply is an Answer and its reason in words (empty for Accepted).
type Reply struct {
	Answer Answer
	Reason string
}

// Handler takes a request at a worker and answers before the work is done. It is called for one request of a worker at
// a time, so it must not block for long: those behind it wait, and those that find the queue full are answered with
// Busy. It owns the request. ctx ends when the deliverer is closed, not with the call.
type Handler func(ctx context.Context, req Request) Reply

// Deliverer hands requests to workers. Methods may be called concurrently.
type Deliverer interface {
	// Deliver hands the request to the worker and returns its reply. It fails at once with ErrNoResponders when nobody
	// serves that worker, with a *SizeError when the request is larger than the path takes, with ErrUnavailable when
	// the path is down (requests go now or fail now), with ErrClosed, or with ctx's cause. A request that is under way
	// when the path breaks fails with ErrUnavailable too: after it, and after ctx's end, the worker may have the
	// request or not, so its terms must be killed, not used again.
	Deliver(ctx context.Context, workerID string, req Request) (Reply, error)

	// Serve has h called for every request to the worker until the service is drained or the deliverer closed. It
	// returns once requests of others arrive; ctx bounds that wait only.
	Serve(ctx context.Context, w Worker, h Handler) (Service, error)

	// Close stops all services and joins its goroutines: handlers that hang see their ctx end, requests that are left
	// in the queues are dropped. Drain first where they matter. Idempotent.
	Close() error
}

// Service is one worker's place at a deliverer.
type Service interface {
	// Drain stops taking requests and returns when those that were queued have been answered by the handler. When ctx
	// ends first, it returns its cause and the draining goes on. Idempotent.
	Drain(ctx context.Context) error
}

// Errors of a Deliverer.
var (
	ErrNoResponders = errors.New("discovery: no worker serves this subject")
	ErrUnavailable  = errors.New("discovery: the delivery path is down")
	ErrClosed       = errors.New("discovery: closed")
)

// SizeError says that a request is larger than the path takes.
type SizeError struct{ Size, Max int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("discovery: the request is %d bytes, the delivery path takes at most %d (raise max_payload of "+
		"the NATS server)", e.Size, e.Max)
}
