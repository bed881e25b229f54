package base

import (
	"errors"

	"github.com/laneway-ai/laneway/transport"
)

// Explained is the error in err that says what was expected and what came, with the address; nil if there is none.
func Explained(err error) error {
	if e, ok := errors.AsType[*transport.IdentityError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*transport.CertificateError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*transport.RefusedError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*transport.ProtocolError](err); ok {
		return e
	}
	return nil
}
