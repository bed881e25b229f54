package transport

import (
	"errors"
	"fmt"
)

// ErrClosed is what Read, Write, Accept and Dial return after the lane, listener or transport was closed on this side.
var ErrClosed = errors.New("transport: closed")

// IdentityError says that the peer proved another identity than the one that was asked for.
type IdentityError struct {
	Address string // what was dialled
	Want    NodeID // who should have answered
	Got     NodeID // who did
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("transport: %s answered as node %s, expected %s: the record is stale or the address belongs to another node", e.Address, e.Got, e.Want)
}

// BindError says which of the endpoints of a listener could not be bound.
type BindError struct {
	Plane   string
	Address string // host:port of the endpoint that failed
	Index   int    // its place in the range, from 0
	Count   int    // how many endpoints were asked for
	Err     error
}

func (e *BindError) Error() string {
	return fmt.Sprintf("transport: cannot bind %s endpoint %d of %d at %s: %v (choose another --bind-addr or free the port)", e.Plane, e.Index+1, e.Count, e.Address, e.Err)
}

func (e *BindError) Unwrap() error { return e.Err }
