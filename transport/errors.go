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
	return fmt.Sprintf("transport: %s answered as node %s, expected %s: the record is stale or the address belongs "+
		"to another node", e.Address, e.Got, e.Want)
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
	return fmt.Sprintf("transport: cannot bind %s endpoint %d of %d at %s: %v (choose another address or free "+
		"the port)", e.Plane, e.Index+1, e.Count, e.Address, e.Err)
}

func (e *BindError) Unwrap() error { return e.Err }

// Denied says whether one side has refused who the other is, or what it speaks. The node's other endpoints would answer
// the same.
func Denied(err error) bool {
	if _, ok := errors.AsType[*IdentityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*CertificateError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return true
	}
	_, ok := errors.AsType[*ProtocolError](err)
	return ok
}

// CertificateReason says in a word why a certificate was not taken.
type CertificateReason string

// Reasons of a CertificateError.
const (
	CertificateExpired          CertificateReason = "expired or not yet valid"
	CertificateUnknownAuthority CertificateReason = "unknown authority"
	CertificateWrongName        CertificateReason = "wrong name"
	CertificateInvalid          CertificateReason = "invalid"
)

// CertificateError says that the peer's certificate does not pass this side's check in CA mode.
type CertificateError struct {
	Address string // of the peer
	Reason  CertificateReason
	Want    string // what was expected
	Got     string // what the peer showed
	Err     error  // of x509
}

func (e *CertificateError) Error() string {
	return fmt.Sprintf("transport: %s: %s: expected %s, got %s: %v", e.Address, e.Reason, e.Want, e.Got, e.Err)
}

func (e *CertificateError) Unwrap() error { return e.Err }

// RefusedError says that the peer did not take the certificate that this node showed. It is the other side of an
// *IdentityError or a *CertificateError.
type RefusedError struct {
	Address string // of the peer
	Want    string // what the peer expects, as far as this side can know
	Got     string // what this node showed
	Err     error  // with the peer's alert
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("transport: %s refused this node's certificate: it expects %s, this node showed %s: %v",
		e.Address, e.Want, e.Got, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// ProtocolError says that the other end of a connection speaks something else: another plane, or no plane at all.
type ProtocolError struct {
	Address string // of the peer
	Want    string // what this side speaks
	Got     string // what came
	Err     error  // may be nil
}

func (e *ProtocolError) Error() string {
	s := fmt.Sprintf("transport: %s: expected %s, got %s: both ends must use the same plane",
		e.Address, e.Want, e.Got)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *ProtocolError) Unwrap() error { return e.Err }
