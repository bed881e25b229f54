// Package tcp is the plane of TCP lanes, plain (plane tcp) or with TLS 1.3 (plane tls).
//
// A lane is one TCP connection. Plain TCP proves no identity and protects nothing. Multipath TCP and kernel keep-alives
// are off: the mux has its own sign of life.
package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// Defaults of Config.
const (
	DefaultNotSentLowat     = 128 << 10
	DefaultHandshakeTimeout = 5 * time.Second
)

// Config is the configuration of a Transport. The zero value is plain TCP with buffers that the kernel tunes.
type Config struct {
	// Identity is what this node proves on plane tls; required there, not used on plain TCP.
	Identity *transport.Identity
	// Authority, if set, is CA mode: certificates of an authority instead of pins; plane tls only.
	Authority *transport.Authority
	// Curves are the key exchanges of plane tls; empty means X25519.
	Curves []tls.CurveID
	// TLS makes the plane tls.
	TLS bool
	// RecvBuffer and SendBuffer are SO_RCVBUF and SO_SNDBUF in bytes, set on listeners before listen (accepted sockets
	// inherit them) and on dialled sockets before connect. 0 lets the kernel tune, which is nearly always better.
	RecvBuffer, SendBuffer int
	// NotSentLowat is TCP_NOTSENT_LOWAT in bytes (Linux): how much the kernel takes that it has not sent yet. It keeps
	// the kernel's queue short, so that urgent records do not wait behind megabytes. 0 means 128 KiB, -1 the kernel's
	// own value.
	NotSentLowat int
	// HandshakeTimeout bounds Dial (connect and TLS handshake together) and the TLS handshake of an accepted lane. 0
	// means 5 s.
	HandshakeTimeout time.Duration
	// Logger gets warnings; nil drops them.
	Logger *slog.Logger
}

// Validate joins all complaints about the Config.
func (c Config) Validate() error {
	var errs []error
	if c.TLS && c.Identity == nil {
		errs = append(errs, errors.New("tcp: plane tls needs an Identity: make one with transport.NewIdentity"))
	}
	if !c.TLS && c.Authority != nil {
		errs = append(errs, errors.New("tcp: an Authority is for plane tls: plain TCP shows and checks no certificate"))
	}
	for _, b := range []struct {
		name string
		n    int
	}{{"receive", c.RecvBuffer}, {"send", c.SendBuffer}} {
		if b.n < 0 || b.n > math.MaxInt32/2 { // the kernel doubles it
			errs = append(errs, fmt.Errorf("tcp: %s buffer of %d bytes, the range is 0 (the kernel tunes) to %d",
				b.name, b.n, math.MaxInt32/2))
		}
	}
	if c.NotSentLowat < -1 || c.NotSentLowat > math.MaxInt32 {
		errs = append(errs,
			fmt.Errorf("tcp: TCP_NOTSENT_LOWAT of %d bytes, the range is 1 to %d (0 = %d, -1 = the kernel's)",
				c.NotSentLowat, math.MaxInt32, DefaultNotSentLowat))
	}
	if c.HandshakeTimeout < 0 {
		errs = append(errs, fmt.Errorf("tcp: handshake timeout %v is negative (0 = %v)", c.HandshakeTimeout,
			DefaultHandshakeTimeout))
	}
	return errors.Join(errs...)
}

// security is what the handshakes of plane tls show and demand.
func (c Config) security() transport.Security {
	return transport.Security{Identity: c.Identity, Authority: c.Authority, Curves: c.Curves}
}
