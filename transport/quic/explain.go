package quic

import (
	"crypto/tls"
	"errors"
	"fmt"

	quicgo "github.com/quic-go/quic-go"

	"github.com/laneway-ai/laneway/transport"
)

// cryptoErrors is where the alerts of TLS begin among QUIC's error codes (RFC 9001, 4.8).
const cryptoErrors = 0x100

// explained turns an error of quic-go into one that says what was expected and what came, where that is known.
func (t *Transport) explained(err error, address string) error {
	if old, ok := errors.AsType[*quicgo.VersionNegotiationError](err); ok {
		return &transport.ProtocolError{Address: address, Want: fmt.Sprintf("QUIC of the versions %v", old.Ours),
			Got: fmt.Sprintf("the versions %v", old.Theirs), Err: err}
	}
	bad, ok := errors.AsType[*quicgo.TransportError](err)
	if !ok || !bad.ErrorCode.IsCryptoError() {
		return err
	}
	alert := tls.AlertError(bad.ErrorCode - cryptoErrors)
	switch {
	case bad.Remote:
		return t.cfg.security().Explain(err, address, &alert)
	case alert == noProtocol: // crypto/tls says in words what came
		return &transport.ProtocolError{Address: address, Want: "QUIC with the protocol " + transport.ALPN,
			Got: "QUIC with another one", Err: err}
	}
	return t.cfg.security().Explain(err, address, nil)
}

// noProtocol is the alert no_application_protocol.
const noProtocol = tls.AlertError(120)
