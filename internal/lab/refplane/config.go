package refplane

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laneway-ai/laneway/internal/program/seldom"
	"github.com/laneway-ai/laneway/transport"
)

// Mode is a reference plane.
type Mode string

// Modes.
const (
	PerResponse Mode = "per-response-connection"
	PerRecord   Mode = "per-record"
	Batched     Mode = "batched"
)

// Modes are all of them.
func Modes() []Mode { return []Mode{PerResponse, PerRecord, Batched} }

// Over tells whether the mode runs over a plane: a connection for each response runs over tcp and tls only.
func (m Mode) Over(plane string) bool { return m != PerResponse || plane != transport.PlaneQUIC }

// Arm is a reference arm of a cluster run: a mode over one plane.
type Arm struct {
	Name     string // as in --response-plane
	Plane    string // transport that carries it
	Mode     Mode
	Interval time.Duration
}

// Arms are the reference arms: mux-tcp, record-quic and interval-quic.
func Arms() []Arm {
	return []Arm{
		{Name: "mux-tcp", Plane: transport.PlaneTCP, Mode: Batched},
		{Name: "record-quic", Plane: transport.PlaneQUIC, Mode: PerRecord},
		{Name: "interval-quic", Plane: transport.PlaneQUIC, Mode: Batched, Interval: 5 * time.Millisecond},
	}
}

// ArmNamed finds a reference arm, false when there is none of that name.
func ArmNamed(name string) (Arm, bool) {
	for _, a := range Arms() {
		if a.Name == name {
			return a, true
		}
	}
	return Arm{}, false
}

// Config of either side. Both sides need the same Mode.
type Config struct {
	Mode Mode
	// Interval is the time between two writes of a connection (Batched only); 0 = a write for each flush. At most 100
	// ms.
	Interval time.Duration
	// Transport carries the plane. The caller closes it, after the plane.
	Transport transport.Transport
	// Identity is the one that Transport was made with; its NodeID stands in the worker's descriptor.
	Identity *transport.Identity
	Name     string
	// Plane is what this plane is called in descriptors and counters; both sides need the same. Default: as the
	// transport's.
	Plane string
	// BindAddr is where this side listens: the worker, or with PerResponse the frontend. Default 127.0.0.1:0. A worker
	// with an unspecified host needs AdvertiseAddr: this package looks for no address.
	BindAddr string
	// AdvertiseAddr is the host that a worker's descriptor names, without a port; empty = that of BindAddr.
	AdvertiseAddr string
	Logger        *slog.Logger // nil = discard
}

func (c Config) withDefaults() Config {
	if c.BindAddr == "" {
		c.BindAddr = "127.0.0.1:0"
	}
	if c.Plane == "" && c.Transport != nil {
		c.Plane = c.Transport.Plane()
	}
	c.Logger = seldom.Logger(c.Logger)
	return c
}

// Validate returns everything that does not hold.
func (c Config) Validate() error {
	var errs []error
	switch c.Mode {
	case PerResponse, PerRecord, Batched:
	default:
		errs = append(errs, fmt.Errorf("refplane: mode %q is not known: use one of %v", c.Mode, Modes()))
	}
	if c.Interval < 0 || c.Interval > 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("refplane: interval %v is out of range: use 0 to 100ms", c.Interval))
	}
	if c.Interval > 0 && c.Mode != Batched {
		errs = append(errs, fmt.Errorf("refplane: an interval of %v with mode %q: only %q has one", c.Interval, c.Mode,
			Batched))
	}
	if c.Transport != nil && !c.Mode.Over(c.Transport.Plane()) {
		errs = append(errs,
			fmt.Errorf("refplane: mode %q over plane %s: a QUIC handshake and a socket for each response is nobody's "+
				"plane; use tcp or tls", c.Mode, c.Transport.Plane()))
	}
	if c.Transport == nil || c.Identity == nil {
		errs = append(errs, errors.New("refplane: a transport and its identity are needed"))
	}
	return errors.Join(errs...)
}
