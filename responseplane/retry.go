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
	reasonStale                      // the worker does not know the link
	reasonNoResponders               // nobody serves the worker's subject
	reasonNoAck                      // no acknowledgement in time
	reasonDelivery                   // the delivery path is down
	reasonNoLink                     // no lane to it
	reasonFirstRecord                // no first record in time
	reasonLost                       // the worker or its link went away
	reasonFailed                     // the worker failed it and says that another may do
	reasons
)

var reasonNames = [reasons]string{"busy", "draining", "stale", "no_responders", "no_ack", "delivery_down", "no_link", "first_record_timeout", "lost", "failed"}

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
	case e.cause == nil:
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

// workersFault says whether others are to be preferred for a while. A full worker is not a bad one, and a delivery path that
// is down says nothing about any worker.
func (r reason) workersFault() bool { return r != reasonBusy && r != reasonDelivery }

// retryCounts count attempts that were made again.
type retryCounts [reasons]atomic.Uint64

func (c *retryCounts) add(r reason) { c[r].Add(1) }

// Retries is how many attempts failed before the first record and were made again at another worker, by reason, whether the
// request then got a record or not. Every reason is there: busy, draining, stale, no_responders, no_ack, delivery_down, no_link,
// first_record_timeout, lost, failed.
func (f *Frontend) Retries() map[string]uint64 {
	m := make(map[string]uint64, reasons)
	for r, name := range reasonNames {
		m[name] = f.retries[r].Load()
	}
	return m
}
