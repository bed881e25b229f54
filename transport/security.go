package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// ALPN is the protocol that both sides of a lane name in the TLS handshake.
const ALPN = "laneway/1"

// Security is what a node shows and demands in the handshakes of the planes tls and quic. The zero value lacks an
// Identity.
type Security struct {
	// Identity is this node. Its certificate is what the node shows, unless there is an Authority.
	Identity *Identity
	// Authority, if set, puts CA mode in the place of pins: both sides show a certificate of an authority and check the
	// other's chain and name. What such a certificate proves is the name; which node has it, HELLO says.
	Authority *Authority
	// Curves are the key exchanges that are offered and taken; which of several that both sides have is used,
	// crypto/tls decides. Empty means X25519 alone: the default post-quantum group makes a handshake 0.6 ms longer and
	// costs 0.5 ms more CPU.
	Curves []tls.CurveID
}

// curves are the key exchanges that a configuration may name, the default first.
var curves = []struct {
	name string
	id   tls.CurveID
}{{"X25519", tls.X25519}, {"P-256", tls.CurveP256}, {"P-384", tls.CurveP384}, {"P-521", tls.CurveP521},
	{"X25519MLKEM768", tls.X25519MLKEM768}}

// Curves are the names of all key exchanges that Security takes, the default first.
func Curves() []string {
	names := make([]string, len(curves))
	for i, c := range curves {
		names[i] = c.name
	}
	return names
}

// ParseCurve reads a name of Curves.
func ParseCurve(name string) (tls.CurveID, error) {
	for _, c := range curves {
		if c.name == name {
			return c.id, nil
		}
	}
	return 0, fmt.Errorf("transport: key exchange %q is not known: use some of %v", name, Curves())
}

// Validate says what is missing.
func (s Security) Validate() error {
	if s.Identity == nil {
		return errors.New("transport: an Identity is required: make one with transport.NewIdentity")
	}
	return nil
}

// base is what both sides have in common.
func (s Security) base() *tls.Config {
	c := &tls.Config{
		MinVersion:       tls.VersionTLS13,
		NextProtos:       []string{ALPN},
		CurvePreferences: s.Curves,
	}
	if len(s.Curves) == 0 {
		c.CurvePreferences = []tls.CurveID{curves[0].id}
	}
	if s.Authority != nil {
		s.Authority.show(c)
	} else {
		c.Certificates = []tls.Certificate{s.Identity.Certificate}
	}
	return c
}

// Server is the configuration of an endpoint. With pins it takes any client certificate, because a frontend has no
// record that could be pinned; what the client proves is its NodeID.
func (s Security) Server() *tls.Config {
	c := s.base()
	c.ClientAuth = tls.RequireAnyClientCert
	// A resumed session would skip the check of what the peer proves.
	c.SessionTicketsDisabled = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if s.Authority != nil {
			return s.Authority.verify(cs, asFrontend)
		}
		return nil
	}
	return c
}

// Client is the configuration of a dialled lane. With pins the peer's certificate must be the one whose hash is
// req.Peer, else the handshake fails with an *IdentityError; a zero Peer takes any. In CA mode it fails with a
// *CertificateError.
func (s Security) Client(req DialRequest) *tls.Config {
	c := s.base()
	// VerifyConnection does what this skips, with the authorities of now and with errors that say what was expected.
	// With pins chain and name mean nothing.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := speaks(cs, req.Address); err != nil {
			return err
		}
		if s.Authority != nil {
			return s.Authority.verify(cs, asWorker)
		}
		got, err := certified(cs)
		if err == nil && !req.Peer.IsZero() && got != req.Peer {
			err = &IdentityError{Address: req.Address, Want: req.Peer, Got: got}
		}
		return err
	}
	return c
}

// Peer says which node the peer of a finished handshake has proven to be. In CA mode that is none: several processes
// may share a certificate.
func (s Security) Peer(cs tls.ConnectionState, address string) (id NodeID, proven bool, err error) {
	if err := speaks(cs, address); err != nil {
		return NodeID{}, false, err
	}
	if s.Authority != nil {
		return NodeID{}, false, nil
	}
	id, err = certified(cs)
	return id, err == nil, err
}

// speaks checks that both sides agreed on the protocol of lanes. A server without ALPN takes every client.
func speaks(cs tls.ConnectionState, address string) error {
	if cs.NegotiatedProtocol == ALPN {
		return nil
	}
	return &ProtocolError{Address: address, Want: "TLS with the protocol " + ALPN,
		Got: fmt.Sprintf("TLS with the protocol %q", cs.NegotiatedProtocol)}
}

// certified is the NodeID of the certificate that the peer showed.
func certified(cs tls.ConnectionState) (NodeID, error) {
	if len(cs.PeerCertificates) == 0 {
		return NodeID{}, errors.New("transport: the peer showed no certificate")
	}
	return CertificateID(cs.PeerCertificates[0].Raw), nil
}

// Alerts of TLS by which a peer says that it does not take a certificate (RFC 8446, 6.2).
const (
	alertHandshakeFailure    = tls.AlertError(40)
	alertBadCertificate      = tls.AlertError(42)
	alertUnsupported         = tls.AlertError(43)
	alertRevoked             = tls.AlertError(44)
	alertExpired             = tls.AlertError(45)
	alertCertificateUnknown  = tls.AlertError(46)
	alertUnknownCA           = tls.AlertError(48)
	alertAccessDenied        = tls.AlertError(49)
	alertCertificateRequired = tls.AlertError(116)
	alertNoProtocol          = tls.AlertError(120)
)

// Explain turns what a handshake, or a lane's first read after it, failed with into an error that says what was
// expected and what came: an *IdentityError or *CertificateError of this side's own check, a *RefusedError where the
// peer's check failed, a *ProtocolError where the two ends speak different protocols. Other errors stay as they are.
// address is the peer's.
//
// alert is what the peer sent, nil if the error is this side's own.
func (s Security) Explain(err error, address string, alert *tls.AlertError) error {
	if bad, ok := errors.AsType[*CertificateError](err); ok {
		named := *bad
		named.Address = address
		return &named
	}
	if wrong, ok := errors.AsType[*IdentityError](err); ok {
		return wrong
	}
	if other, ok := errors.AsType[*ProtocolError](err); ok {
		return other
	}
	if alert == nil {
		return err
	}
	switch *alert {
	case alertBadCertificate, alertUnsupported, alertRevoked, alertExpired, alertCertificateUnknown, alertUnknownCA,
		alertAccessDenied, alertCertificateRequired:
		want, got := s.shown()
		return &RefusedError{Address: address, Want: want, Got: got, Err: err}
	case alertNoProtocol:
		return &ProtocolError{Address: address, Want: "the protocol " + ALPN, Got: "TLS that does not speak it",
			Err: err}
	case alertHandshakeFailure:
		return &ProtocolError{Address: address, Want: fmt.Sprintf("TLS 1.3 with a key exchange out of %v",
			s.base().CurvePreferences), Got: "TLS without any of them", Err: err}
	}
	return err
}

// shown says what a peer that refuses this node's certificate wanted, and what it was shown.
func (s Security) shown() (want, got string) {
	if s.Authority != nil {
		return "a certificate of the authorities that it trusts, for the peer name that it expects",
			s.Authority.shown()
	}
	return "the certificate of another node, or one of an authority", "the certificate of node " +
		s.Identity.ID.String()
}
