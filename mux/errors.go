package mux

import (
	"errors"
	"fmt"

	"github.com/laneway-ai/laneway/mux/internal/dial"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// EndType says how a stream ended.
type EndType = wire.EndType

// Types of ends.
const (
	EndComplete = wire.EndComplete
	EndFailed   = wire.EndFailed
	EndStopped  = wire.EndStopped
	EndKilled   = wire.EndKilled
	EndRefused  = wire.EndRefused
	EndDeadline = wire.EndDeadline
	EndLost     = wire.EndLost
	EndProtocol = wire.EndProtocol
)

// WireMin and WireMax are the protocol versions that this code speaks, for a node's record.
const (
	WireMin = wire.MinVersion
	WireMax = wire.MaxVersion
)

// EndTypes lists every type of end.
func EndTypes() []EndType { return wire.EndTypes() }

// End is the one end of a stream.
type End struct {
	Type      EndType
	Code      uint16 // why, for failed and refused; its meaning is the embedder's
	Retryable bool   // the worker says that another attempt may succeed
	Text      string
	Trailer   []byte // opaque, at most 16 KiB
	Records   uint64 // records that were delivered (as the side that holds this End saw it)
	Bytes     uint64 // their payload bytes
}

// Errors of streams and nodes.
var (
	// ErrWindowFull: the record does not fit the stream's window now; OnWritable tells when there is room.
	ErrWindowFull = errors.New("mux: the stream's window is full")
	// ErrEnded: the stream has its end on this side already.
	ErrEnded = errors.New("mux: the stream has ended")
	// ErrRecordTooLarge: the record can never fit (TryPut of more than the window, or more than the receiver
	// assembles).
	ErrRecordTooLarge = errors.New("mux: the record is too large")
	// ErrClosed: the WorkerNode or FrontendNode is closed.
	ErrClosed = dial.ErrClosed
	// ErrDraining: no new streams.
	ErrDraining = dial.ErrDraining
	// ErrBusy: the bound on committed windows or on streams is reached.
	ErrBusy = errors.New("mux: busy")
	// ErrNoLink: there is no link to that node, or none of its lanes has a connection.
	ErrNoLink = dial.ErrNoLink
	// ErrStaleTerms: the terms are not for this life of this node, not for a link that it has, or already used.
	ErrStaleTerms = errors.New("mux: stale terms")
	// ErrTermsVersion: the terms are of a version that this side does not read.
	ErrTermsVersion = wire.ErrTermsVersion
)

// EndError is what a stream's methods return once it has ended otherwise than complete.
type EndError struct{ End End }

func (e *EndError) Error() string {
	if e.End.Text == "" {
		return fmt.Sprintf("mux: the stream ended: %s", e.End.Type)
	}
	return fmt.Sprintf("mux: the stream ended: %s: %s", e.End.Type, e.End.Text)
}
