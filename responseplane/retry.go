package responseplane

import (
	"errors"
	"sync/atomic"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/mux"
)

// reason is why an attempt was made again.
type reason int

const (
	reasonBusy         reason = iota // its places are taken
	reasonDraining                   // it takes nothing new
	reasonStale                      // the worker does not know the link; there will be another one
	reasonNoResponders               // nobody serves the worker's subject
	reasonNoAck                      // no acknowledgement in time
	reasonDelivery                   // the delivery path is down
	reasonNoLink                     // no lane to it
	reasonFirstRecord                // no first record in time
	reasonLost                       // the worker or its link went away
	reasonFailed                     // the worker failed it and says that another may do
	reasons
)

var reasonNames = [reasons]string{"busy", "draining", "stale", "no_responders", "no_ack", "delivery_down", "no_link",
	"first_record_timeout", "lost", "failed"}

// retryReason sorts an error of an attempt that is worth another one.
func retryReason(e *Error) reason {
	switch e.Kind {
	case EndDeadline:
		return reasonFirstRecord
	case EndLost:
		return reasonLost
	case EndFailed:
		return reasonFailed
	}
	switch {
	case e.Code == CodeBusy:
		return reasonBusy
	case e.Code == CodeDraining:
		return reasonDraining
	case e.Code == CodeNoWorker && e.cause == nil:
		return reasonStale
	case errors.Is(e.cause, discovery.ErrNoResponders):
		return reasonNoResponders
	case errors.Is(e.cause, mux.ErrNoLink):
		return reasonNoLink
	case isContext(e.cause):
		return reasonNoAck
	}
	return reasonDelivery
}

// isStale says whether a worker has answered that it does not know the link.
func isStale(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == EndRefused && retryReason(e) == reasonStale
}

// fault is who is to be avoided for a while after a failure.
type fault int

const (
	faultNobody fault = iota
	faultWorker       // one engine
	faultNode         // its process, with all its engines
)

// fault says whom a reason speaks against. A full worker is not a bad one, a delivery path that is down says nothing
// about any worker, and a link that was forgotten, or has just gone, is made anew. A process that does not acknowledge,
// or that lost its link, does so for all its engines.
func (f *Frontend) fault(r reason) fault {
	switch {
	case r == reasonBusy || r == reasonDelivery || f.ofLink(r):
		return faultNobody
	case r == reasonFirstRecord || r == reasonFailed || r == reasonNoResponders:
		return faultWorker
	}
	return faultNode
}

// retryCounts count attempts that were made again.
type retryCounts [reasons]atomic.Uint64

func (c *retryCounts) add(r reason) { c[r].Add(1) }

// Retries is how many attempts failed before the first record and were followed by another one, by reason, whether the
// request then got a record or not. Every reason is there: busy, draining, stale, no_responders, no_ack, delivery_down,
// no_link, first_record_timeout, lost, failed.
func (f *Frontend) Retries() map[string]uint64 {
	m := make(map[string]uint64, reasons)
	for r, name := range reasonNames {
		m[name] = f.retries[r].Load()
	}
	return m
}
