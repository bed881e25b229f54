package mux

import (
	"errors"
	"fmt"

	"github.com/laneway-ai/laneway/internal/wire"
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

// Errors of streams, senders and receivers.
var (
	// ErrWindowFull: the record does not fit the stream's window now; OnWritable tells when there is room.
	ErrWindowFull = errors.New("mux: the stream's window is full")
	// ErrEnded: the stream has its end on this side already.
	ErrEnded = errors.New("mux: the stream has ended")
	// ErrRecordTooLarge: the record can never fit (TryPut of more than the window, or more than the receiver assembles).
	ErrRecordTooLarge = errors.New("mux: the record is too large")
	// ErrClosed: the Sender or Receiver is closed.
	ErrClosed = errors.New("mux: closed")
	// ErrDraining: no new streams.
	ErrDraining = errors.New("mux: draining")
	// ErrBusy: the bound on committed windows or on streams is reached.
	ErrBusy = errors.New("mux: busy")
	// ErrNoLink: there is no link to that node, or none of its lanes is up.
	ErrNoLink = errors.New("mux: no link")
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

// Reasons of a lane's death, as they stand in metrics.
const (
	deathClosed    = "closed"    // by this side, on purpose
	deathPeer      = "peer"      // the peer closed it or the connection broke
	deathSilent    = "silent"    // nothing arrived for too long
	deathProtocol  = "protocol"  // this side saw a malformed or illegal record
	deathRefused   = "refused"   // the peer sent GOAWAY with a reason
	deathMoved     = "moved"     // the frontend has moved the lane's streams elsewhere
	deathHandshake = "handshake" // before it was up
	deathReplaced  = "replaced"  // its link has gone to another plane, and its last stream has ended
)

var deathReasons = []string{deathClosed, deathPeer, deathSilent, deathProtocol, deathRefused, deathMoved, deathHandshake, deathReplaced}

// laneError says why a lane died.
type laneError struct {
	reason string
	err    error
}

func (e *laneError) Error() string { return "mux: lane died (" + e.reason + "): " + e.err.Error() }
func (e *laneError) Unwrap() error { return e.err }

// goAwayError is a GOAWAY that ended a lane.
type goAwayError struct {
	code wire.GoAwayCode
	text string
}

func (e *goAwayError) Error() string {
	return fmt.Sprintf("the peer refused the lane: %s: %s", e.code, e.text)
}
