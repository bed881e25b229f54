// Package quic is the plane of QUIC lanes (plane quic). A lane is one QUIC connection with one bidirectional stream.
//
// Each dialled lane has a UDP socket of its own; the lanes of a server endpoint share the endpoint's. On Linux a lane's
// socket is connected to its peer, so the kernel reports a port where nobody listens: a dial to it fails at once with
// ECONNREFUSED, and an open lane ends with it at the first packet after the peer's process has died. Elsewhere that
// takes the handshake or idle timeout.
//
// A lane becomes visible to its acceptor with the first byte that the dialler writes. The dialler must write first and
// soon: a connection without a stream is dropped after Config.HandshakeTimeout.
//
// # Buffers and quic-go's warning
//
// quic-go sets both buffers of a socket to 7 MiB, as root beyond net.core.rmem_max, and prints a warning to the
// standard logger unless the process has QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING=true in its environment. A library must
// not change the environment of its process. On Linux it does not need to: the socket that this package hands to
// quic-go takes that step over, so what Config asks for is what is set, and the package's own warning goes to
// Config.Logger. On other systems set the variable to silence quic-go.
package quic

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// Defaults and limits of Config.
const (
	DefaultRecvBuffer       = 8 << 20
	DefaultSendBuffer       = 4 << 20
	DefaultIdleTimeout      = 15 * time.Second
	DefaultHandshakeTimeout = 5 * time.Second

	MinMTU          = 1200
	MaxMTU          = 1452
	MinStreamWindow = 64 << 10
	MaxStreamWindow = 64 << 20
	// What bounds the window that follows from the granted buffer: laneWindow on a dialled lane's socket, whose reader
	// waits while the library's queue of 256 packets is full. The reader of an endpoint must not, so endpointWindow
	// fits into the queue, in packets of 1,200 bytes with a quarter to spare.
	laneWindow     = 1 << 20
	endpointWindow = 192 << 10
)

// Config is the configuration of a Transport. Only Identity is required.
type Config struct {
	// Identity is what this node proves.
	Identity *transport.Identity
	// Authority, if set, is CA mode: certificates of an authority instead of pins.
	Authority *transport.Authority
	// Curves are the key exchanges; empty means X25519.
	Curves []tls.CurveID
	// RecvBuffer and SendBuffer are SO_RCVBUF and SO_SNDBUF in bytes of each socket; 0 means 8 MiB and 4 MiB. The
	// kernel clamps them to net.core.rmem_max and wmem_max; a socket that gets less is warned about.
	RecvBuffer, SendBuffer int
	// MaxMTU is the size of the UDP payload: 0 = discovery up to 1452, 1200 to 1452 = fixed at that.
	MaxMTU int
	// StreamWindow is how many bytes a peer may send on a lane before this side has read them, 64 KiB to 64 MiB; the
	// connection's window is 1.5 times that. 0 means a quarter of the granted receive buffer, so that a clamped one is
	// not overrun, but at most 1 MiB on a dialled lane and 192 KiB on an accepted one (most bytes flow the other way; a
	// larger one overruns the library's queues).
	StreamWindow int
	// IdleTimeout ends a lane on which nothing was received; 0 means 15 s. The smaller of both ends counts. QUIC's
	// keep-alive is off: the mux has its own sign of life.
	IdleTimeout time.Duration
	// HandshakeTimeout bounds Dial, from when it has its turn (few dials to one address are in their handshake at
	// once), and on the accepting side the handshake and the wait for the first byte. 0 means 5 s.
	HandshakeTimeout time.Duration
	// DisableGRO and DisableGSO turn off UDP receive and send offload (Linux only; both fall back by themselves).
	DisableGRO, DisableGSO bool
	// StatelessResetKey lets a restarted process tell its peers that their connections are gone. It must be the same in
	// both lives of the process to help, and secret. nil means no stateless resets.
	StatelessResetKey *[32]byte
	// Logger gets warnings; nil drops them.
	Logger *slog.Logger
}

// Validate joins all complaints about the Config.
func (c Config) Validate() error {
	var errs []error
	if c.Identity == nil {
		errs = append(errs, errors.New("quic: an Identity is required: make one with transport.NewIdentity"))
	}
	for _, b := range []struct {
		name  string
		n     int
		usual int
	}{{"receive", c.RecvBuffer, DefaultRecvBuffer}, {"send", c.SendBuffer, DefaultSendBuffer}} {
		if b.n < 0 || b.n > math.MaxInt32/2 { // the kernel doubles it
			errs = append(errs, fmt.Errorf("quic: %s buffer of %d bytes, the range is 1 to %d (0 = %d)", b.name, b.n,
				math.MaxInt32/2, b.usual))
		}
	}
	switch {
	case c.MaxMTU > MaxMTU:
		errs = append(errs,
			fmt.Errorf("quic: maximal MTU of %d bytes: the QUIC library has packet buffers of %d bytes and cannot "+
				"send larger packets; choose %d to %d, or 0 for discovery", c.MaxMTU, MaxMTU, MinMTU, MaxMTU))
	case c.MaxMTU != 0 && c.MaxMTU < MinMTU:
		errs = append(errs,
			fmt.Errorf("quic: maximal MTU of %d bytes: QUIC needs paths that carry %d (RFC 9000, 14); choose %d to "+
				"%d, or 0 for discovery", c.MaxMTU, MinMTU, MinMTU, MaxMTU))
	}
	if c.StreamWindow != 0 && (c.StreamWindow < MinStreamWindow || c.StreamWindow > MaxStreamWindow) {
		errs = append(errs,
			fmt.Errorf("quic: stream window of %d bytes, the range is %d to %d (0 = from the granted buffer)",
				c.StreamWindow, MinStreamWindow, MaxStreamWindow))
	}
	if c.IdleTimeout < 0 {
		errs = append(errs, fmt.Errorf("quic: idle timeout %v is negative (0 = %v)", c.IdleTimeout, DefaultIdleTimeout))
	}
	if c.HandshakeTimeout < 0 {
		errs = append(errs, fmt.Errorf("quic: handshake timeout %v is negative (0 = %v)", c.HandshakeTimeout,
			DefaultHandshakeTimeout))
	}
	return errors.Join(errs...)
}

// security is what the handshakes show and demand.
func (c Config) security() transport.Security {
	return transport.Security{Identity: c.Identity, Authority: c.Authority, Curves: c.Curves}
}

func (c Config) withDefaults() Config {
	if c.RecvBuffer == 0 {
		c.RecvBuffer = DefaultRecvBuffer
	}
	if c.SendBuffer == 0 {
		c.SendBuffer = DefaultSendBuffer
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = DefaultHandshakeTimeout
	}
	return c
}

// mtu is the largest UDP payload that is sent.
func (c Config) mtu() int {
	if c.MaxMTU != 0 {
		return c.MaxMTU
	}
	return MaxMTU
}

// window is the stream window, at most most, for a socket that was granted so many bytes of receive buffer.
func (c Config) window(granted, most int) int {
	if c.StreamWindow != 0 {
		return c.StreamWindow
	}
	return max(min(granted/4, most), MinStreamWindow)
}
