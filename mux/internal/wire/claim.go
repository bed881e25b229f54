package wire

import (
	"fmt"
	"time"
)

// OpenTermsSize is the length of open terms. A longer encoding is allowed and its tail ignored.
const OpenTermsSize = 52

// Kinds of terms, the second field of every encoding.
const (
	termsBound = 0 // Terms: slot, lane and window are chosen
	termsOpen  = 1 // OpenTerms: the worker asks for them
)

// OpenTerms name a frontend and a request, but no worker: a router further on chooses it. The worker asks for terms
// with CLAIM, on its link to the frontend.
//
//	version u16 | 1 u16 | frontend 16 | id 16 | time left u64 (microseconds, 0 = none) | 0 x 8
type OpenTerms struct {
	Frontend [16]byte
	ID       [16]byte // random
	TimeLeft time.Duration
}

// AppendOpenTerms appends the encoding.
func AppendOpenTerms(b []byte, t *OpenTerms) []byte {
	b = be.AppendUint16(b, TermsVersion)
	b = be.AppendUint16(b, termsOpen)
	b = append(b, t.Frontend[:]...)
	b = append(b, t.ID[:]...)
	b = be.AppendUint64(b, uint64(max(t.TimeLeft, 0)/time.Microsecond))
	return be.AppendUint64(b, 0)
}

// IsOpenTerms says whether an encoding is that of open terms.
func IsOpenTerms(b []byte) bool {
	return len(b) >= 4 && be.Uint16(b) == TermsVersion && be.Uint16(b[2:]) == termsOpen
}

// ParseOpenTerms decodes open terms.
func ParseOpenTerms(b []byte) (OpenTerms, error) {
	if err := checkTerms(b, termsOpen, OpenTermsSize); err != nil {
		return OpenTerms{}, err
	}
	return OpenTerms{Frontend: [16]byte(b[4:20]), ID: [16]byte(b[20:36]), TimeLeft: timeLeft(b[36:])}, nil
}

// checkTerms checks what all encodings begin with.
func checkTerms(b []byte, kind uint16, size int) error {
	if len(b) < 4 {
		return fmt.Errorf("wire: terms have %d bytes, expected %d", len(b), size)
	}
	if v := be.Uint16(b); v != TermsVersion {
		return fmt.Errorf("%w: version %d, this side reads %d", ErrTermsVersion, v, TermsVersion)
	}
	if k := be.Uint16(b[2:]); k != kind {
		return fmt.Errorf("wire: terms are of kind %d, expected %d (0: bound, 1: open)", k, kind)
	}
	if len(b) < size {
		return fmt.Errorf("wire: terms have %d bytes, expected %d", len(b), size)
	}
	return nil
}

func timeLeft(b []byte) time.Duration {
	const most = uint64(1<<63-1) / uint64(time.Microsecond)
	return time.Duration(min(be.Uint64(b), most)) * time.Microsecond
}

// GrantCode says what became of a CLAIM.
type GrantCode uint16

// Codes of GRANT.
const (
	Granted      GrantCode = 0
	GrantUnknown GrantCode = 1 // the frontend does not wait for this id: given up, claimed by another, or never its own
	GrantBusy    GrantCode = 2 // slots or windows are taken
	GrantClosing GrantCode = 3 // the frontend takes no new responses
)

// AppendClaim appends a CLAIM.
func AppendClaim(b []byte, id [16]byte) []byte {
	return append(AppendHeader(b, Claim, len(id), 0), id[:]...)
}

// ParseClaim decodes a CLAIM's body.
func ParseClaim(body []byte) (id [16]byte, err error) {
	if len(body) != len(id) {
		return id, short(Claim, 0, len(body), len(id))
	}
	return [16]byte(body), nil
}

// AppendGrant appends a GRANT: id 16 | code u16 | terms, which are there with code 0 only.
func AppendGrant(b []byte, id [16]byte, code GrantCode, terms []byte) []byte {
	return AppendGrantBody(AppendHeader(b, Grant, len(id)+2+len(terms), 0), id, code, terms)
}

// AppendGrantBody appends a GRANT's body.
func AppendGrantBody(b []byte, id [16]byte, code GrantCode, terms []byte) []byte {
	b = append(b, id[:]...)
	b = be.AppendUint16(b, uint16(code))
	return append(b, terms...)
}

// ParseGrant decodes a GRANT's body. The terms point into body.
func ParseGrant(body []byte) (id [16]byte, code GrantCode, terms []byte, err error) {
	if len(body) < len(id)+2 {
		return id, 0, nil, short(Grant, 0, len(body), len(id)+2)
	}
	return [16]byte(body), GrantCode(be.Uint16(body[16:])), body[18:], nil
}
