package base

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// DialFailure is a dial that failed.
type DialFailure struct {
	Plane   string
	Request transport.DialRequest
	Limit   time.Duration // the plane's own bound of a dial
	Silence string        // what it may mean that nobody has answered, "" for nothing more than that
	Closed  bool          // the transport was closed meanwhile
	Err     error
}

// Error is what Dial returns: what was dialled and why it failed. ctx is Dial's own; the plane's bound is not in it. An
// error that says what was expected and what came stands alone.
func (f DialFailure) Error(ctx context.Context) error {
	if known := Explained(f.Err); known != nil {
		return known
	}
	if f.Closed {
		return transport.ErrClosed
	}
	err := f.Err
	if op, ok := err.(*net.OpError); ok {
		err = op.Err // without the address, which stands below
	}
	until, bounded := ctx.Deadline()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case bounded && time.Now().After(until):
		// The socket's own deadline is the context's and may be seen before it.
		err = context.DeadlineExceeded
	case timedOut(err):
		err = fmt.Errorf("no answer within %v%s: %w", f.Limit, f.Silence, context.DeadlineExceeded)
	}
	return fmt.Errorf("transport: dial %s lane %d at %s: %w", f.Plane, f.Request.Lane, f.Request.Address, err)
}

// timedOut says whether the plane's own bound has ended the dial.
func timedOut(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}
