package responseplane

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
	"unicode/utf8"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/program/seldom"
	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/transport"
)

// NodeID names one life of a process.
type NodeID = transport.NodeID

// Descriptor is what a frontend must know of a worker process to reach it. It marshals to JSON.
type Descriptor = discovery.Node

// DialMode says when a Frontend connects to a worker.
type DialMode int

const (
	// DialEager connects as soon as a worker is known. The default.
	DialEager DialMode = iota
	// DialOnDemand connects at the first response.
	DialOnDemand
)

// Router is how Open chooses among the workers of a model.
type Router string

const (
	// RouterLeastLoaded takes the one of two random workers with fewer open responses. The default.
	RouterLeastLoaded Router = "least-loaded"
	RouterRoundRobin  Router = "round-robin"
	RouterRandom      Router = "random"
)

// Defaults of FrontendConfig.
const (
	DefaultRetryLimit = 3
	DefaultAckTimeout = 2 * time.Second
	DefaultAvoidFor   = 5 * time.Second
	// DefaultKeepVanished is three times the default lease of discovery/etcd.
	DefaultKeepVanished = 30 * time.Second
)

// FrontendConfig has the settings of a Frontend. Zero means the default; for durations and counts that can be off,
// negative means off.
type FrontendConfig struct {
	// Identity is the one that the transports were built with; required.
	Identity *transport.Identity
	// Name is this process for people.
	Name string
	// Transports, one per plane, in order of preference; at least one. The Frontend does not close them.
	Transports []transport.Transport

	// Lanes is how many connections go to each worker process: 1 (default) to 16. PlaneLanes overrides it for a plane
	// by name.
	Lanes      int
	PlaneLanes map[string]int
	// StreamWindow is the most bytes of a response that the worker may be ahead of the application: 64 KiB by default,
	// 4 KiB to 16 MiB.
	StreamWindow int
	// MaxBufferedBytes bounds the windows of all open responses and the lanes' logs, in bytes: 1 GiB by default, 4 MiB
	// at least. A response gets at most 1/1024 of what is free; below 4 KiB it is refused as busy.
	MaxBufferedBytes int64
	// MaxRecordBytes is the longest record that is taken, in bytes: 16 MiB by default.
	MaxRecordBytes int
	// ShrinkThreshold is the size in bytes past which a buffer that a large record has grown is given back: 1 MiB by
	// default, 64 KiB to 1 GiB.
	ShrinkThreshold int
	// LaneLog is how many bytes that were sent and not acknowledged a lane keeps, each way: 4 MiB by default, 256 KiB
	// to 64 MiB.
	LaneLog int
	// KeepAliveInterval is the time between PINGs on a lane without open streams: 5 s by default, 100 ms at least.
	KeepAliveInterval time.Duration
	// IdleTimeout is after how long without a byte the connection of such a lane is dead: 15 s by default, three
	// PINGs at least. Of these times a link uses the shorter ones of its two ends.
	IdleTimeout time.Duration
	// ActivePingInterval is the time between PINGs on a lane with open streams: 1 s by default, 100 ms at least;
	// after three of them without a byte its connection is dead. Negative: as on lanes without streams.
	ActivePingInterval time.Duration
	// ResumeTimeout is how long a lane may be without a connection before its streams are lost: 10 s by default, 90 s
	// at most; the shorter one of both ends holds. Negative: the death of a connection ends its streams.
	ResumeTimeout time.Duration
	// BatchGapMax is the longest that records wait so that writes merge: 2 ms by default, 5 ms at most. Negative: off.
	// A stream's first record never waits.
	BatchGapMax time.Duration
	// NoUrgent turns off that first records and control go before the rest.
	NoUrgent bool
	// Dial says when a worker process is connected to: DialEager by default.
	Dial DialMode

	// Deliverer and Router are for Open; Mint needs neither.
	Deliverer discovery.Deliverer
	Router    Router
	// RetryLimit is how many further attempts Open makes before the first record: 3 by default, negative for none.
	RetryLimit int
	// AckTimeout is how long a worker may take to acknowledge, 2 s by default.
	AckTimeout time.Duration
	// AvoidFor is how long a worker that just failed is left out while others are there, 5 s by default; all workers of
	// a process that does not acknowledge or loses its link are.
	AvoidFor time.Duration
	// KeepVanished is how long a worker whose record has left the registry is still used when no other one is left,
	// while its link is up and its process does not drain: 30 s by default, negative for not at all. Of use up to a
	// minute: then a process that no record names and that carries nothing is let go.
	KeepVanished time.Duration

	// KeepEnded is how many requests of Open can still be looked at (Inspect, Find) after their end, for a minute:
	// 16,384 by default and at most, of some 900 bytes each. Negative: none.
	KeepEnded int

	// Logger takes what happens to links and workers; nil discards.
	Logger *slog.Logger
}

// Validate joins everything that is wrong with the configuration.
func (c FrontendConfig) Validate() error {
	var errs []error
	if c.Identity == nil {
		errs = append(errs, errors.New("responseplane: FrontendConfig.Identity is missing"))
	} else if err := c.mux().Validate(); err != nil {
		errs = append(errs, err)
	}
	if !utf8.ValidString(c.Name) {
		errs = append(errs, fmt.Errorf("responseplane: FrontendConfig.Name %q is not UTF-8 text", c.Name))
	}
	if len(c.Transports) == 0 {
		errs = append(errs,
			errors.New("responseplane: FrontendConfig.Transports is empty: a Frontend needs at least one plane"))
	}
	if c.KeepEnded > MaxEnded {
		errs = append(errs,
			fmt.Errorf("responseplane: FrontendConfig.KeepEnded is %d, at most %d is allowed", c.KeepEnded, MaxEnded))
	}
	switch c.Router {
	case "", RouterLeastLoaded, RouterRoundRobin, RouterRandom:
	default:
		errs = append(errs, fmt.Errorf("responseplane: Router is %q, allowed are %s, %s and %s", c.Router,
			RouterLeastLoaded, RouterRoundRobin, RouterRandom))
	}
	return errors.Join(errs...)
}

func (c FrontendConfig) mux() mux.Config {
	return mux.Config{
		ID: c.Identity.ID, Name: c.Name, Lanes: c.Lanes, PlaneLanes: c.PlaneLanes, Window: c.StreamWindow,
		MaxBuffered: c.MaxBufferedBytes,
		MaxRecord:   c.MaxRecordBytes, ShrinkThreshold: c.ShrinkThreshold, KeepAlive: c.KeepAliveInterval,
		Idle: c.IdleTimeout, ActivePing: c.ActivePingInterval,
		ResumeTimeout: c.ResumeTimeout, GapMax: c.BatchGapMax, NoUrgent: c.NoUrgent, Log: c.LaneLog,
		OnDemand: c.Dial == DialOnDemand, Logger: c.Logger,
	}
}

func (c FrontendConfig) withDefaults() FrontendConfig {
	set := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	set(&c.AckTimeout, DefaultAckTimeout)
	set(&c.AvoidFor, DefaultAvoidFor)
	set(&c.KeepVanished, DefaultKeepVanished)
	if c.RetryLimit == 0 {
		c.RetryLimit = DefaultRetryLimit
	}
	if c.Router == "" {
		c.Router = RouterLeastLoaded
	}
	c.Logger = seldom.Logger(c.Logger)
	return c
}

// WorkerConfig has the settings of a Worker: one per process, however many engines it hosts. Zero means the default.
type WorkerConfig struct {
	// Identity is the one that the transports were built with; required.
	Identity *transport.Identity
	// Name is this process for people: it stands in its descriptor, in reports and metrics.
	Name string
	// Transports, one per plane, in order of preference; at least one. The Worker does not close them.
	Transports []transport.Transport

	// BindAddr is host:port to listen on; ":0" by default. A fixed port P binds P..P+n-1 on every plane.
	BindAddr string
	// AdvertiseAddr is the host that frontends dial, a name or an IP address without a port; by default the bind host,
	// or for a wildcard the first global unicast address of this machine. Addresses that no other host can reach
	// (wildcard, multicast, link-local, reserved) are refused; a loopback address is for frontends on this host only.
	AdvertiseAddr string
	// ServerEndpoints is how many sockets to listen on, each with its own port: 4 by default, 1 to 64.
	ServerEndpoints int

	// MaxReplayBytes bounds the windows of all open responses and the lanes' logs, in bytes: 1 GiB by default. Past it
	// requests are refused as busy.
	MaxReplayBytes int64
	// MaxStreams is how many responses a frontend may have open here: 65,536 by default, up to 16,777,215.
	MaxStreams int
	// LaneLog is how many bytes that were sent and not acknowledged a lane keeps, each way: 4 MiB by default, 256 KiB
	// to 64 MiB.
	LaneLog int
	// KeepAliveInterval is the time between PINGs on a lane without open streams: 5 s by default, 100 ms at least.
	KeepAliveInterval time.Duration
	// IdleTimeout is after how long without a byte the connection of such a lane is dead: 15 s by default, three
	// PINGs at least. Of these times a link uses the shorter ones of its two ends.
	IdleTimeout time.Duration
	// ActivePingInterval is the time between PINGs on a lane with open streams: 1 s by default, 100 ms at least;
	// after three of them without a byte its connection is dead. Negative: as on lanes without streams.
	ActivePingInterval time.Duration
	// ResumeTimeout is how long a lane may be without a connection before its streams are lost: 10 s by default, 90 s
	// at most; the shorter one of both ends holds. Negative: the death of a connection ends its streams.
	ResumeTimeout time.Duration
	// BatchGapMax is the longest that records wait so that writes merge: 2 ms by default, 5 ms at most. Negative: off.
	// A stream's first record never waits.
	BatchGapMax time.Duration
	// NoUrgent turns off that first records and control go before the rest.
	NoUrgent bool

	// Logger takes what happens to links; nil discards.
	Logger *slog.Logger
}

// DefaultServerEndpoints is WorkerConfig.ServerEndpoints when it is zero.
const DefaultServerEndpoints = 4

// Validate joins everything that is wrong with the configuration.
func (c WorkerConfig) Validate() error {
	var errs []error
	if c.Identity == nil {
		errs = append(errs, errors.New("responseplane: WorkerConfig.Identity is missing"))
	} else if err := c.mux().Validate(); err != nil {
		errs = append(errs, err)
	}
	if !utf8.ValidString(c.Name) {
		errs = append(errs, fmt.Errorf("responseplane: WorkerConfig.Name %q is not UTF-8 text", c.Name))
	}
	if len(c.Transports) == 0 {
		errs = append(errs,
			errors.New("responseplane: WorkerConfig.Transports is empty: a Worker needs at least one plane"))
	}
	if c.AdvertiseAddr != "" {
		if _, _, err := net.SplitHostPort(c.AdvertiseAddr); err == nil {
			errs = append(errs,
				fmt.Errorf("responseplane: AdvertiseAddr %q has a port: write the host alone, the ports are those "+
					"that were bound", c.AdvertiseAddr))
		} else if err := transport.CheckAddress(c.AdvertiseAddr); err != nil {
			errs = append(errs, fmt.Errorf("responseplane: AdvertiseAddr: %w", err))
		}
	}
	if c.ServerEndpoints < 0 || c.ServerEndpoints > 64 {
		errs = append(errs, fmt.Errorf("responseplane: ServerEndpoints is %d, allowed are 1 to 64", c.ServerEndpoints))
	}
	return errors.Join(errs...)
}

func (c WorkerConfig) mux() mux.Config {
	return mux.Config{
		ID: c.Identity.ID, Name: c.Name, MaxReplay: c.MaxReplayBytes, MaxStreams: c.MaxStreams,
		KeepAlive: c.KeepAliveInterval, Idle: c.IdleTimeout,
		ActivePing: c.ActivePingInterval, ResumeTimeout: c.ResumeTimeout, GapMax: c.BatchGapMax, NoUrgent: c.NoUrgent,
		Log:    c.LaneLog,
		Logger: c.Logger,
	}
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	if c.BindAddr == "" {
		c.BindAddr = ":0"
	}
	if c.ServerEndpoints == 0 {
		c.ServerEndpoints = DefaultServerEndpoints
	}
	c.Logger = seldom.Logger(c.Logger)
	return c
}
