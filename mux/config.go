package mux

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laneway-ai/laneway/internal/program/seldom"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Config has the settings of a WorkerNode or FrontendNode. Zero means the default; for durations that can be off,
// negative means off. It is copied when it is used.
type Config struct {
	// ID is this node's identity; required.
	ID transport.NodeID
	// Name is this node for people, in logs.
	Name string

	// Lanes is how many connections a FrontendNode opens to each peer: 1 (default) to 16.
	Lanes int
	// PlaneLanes overrides Lanes for a plane.
	PlaneLanes map[string]int

	// Window is the most unconsumed bytes of a stream: 64 KiB (default), 4 KiB to 16 MiB.
	Window int
	// MaxBuffered bounds the windows that a FrontendNode has given, with its lanes' logs: 1 GiB by default, 4 MiB at
	// least. A stream gets min(Window, free/1024).
	MaxBuffered int64
	// MaxReplay bounds the windows that a WorkerNode has accepted, with its lanes' logs, 1 GiB by default. Past it
	// terms are refused as busy.
	MaxReplay int64
	// Log is how many bytes a lane keeps, each way, of what was sent and not acknowledged: 4 MiB (default), 256 KiB to
	// 64 MiB. A lane whose log is full stops writing until the peer has read. Past MaxBuffered or MaxReplay it is 128
	// KiB.
	Log int
	// MaxRecord is the longest record that a FrontendNode assembles, 16 MiB by default.
	MaxRecord int
	// ShrinkThreshold is the size past which a stream's buffer that a large record has grown is given back once the
	// record is taken: 1 MiB by default, 64 KiB to 1 GiB.
	ShrinkThreshold int
	// MaxStreams is how many streams a WorkerNode allows on a link: 65,536 by default, up to 16,777,215.
	MaxStreams int
	// MaxLinks is how many links a WorkerNode keeps, 1,024 by default.
	MaxLinks int

	// KeepAlive is the time between PINGs on a lane without open streams, 5 s by default; 100 ms at least.
	KeepAlive time.Duration
	// Idle is after how long without a byte the connection of such a lane is dead, 15 s by default. Of these times each
	// link uses the shorter ones of its two ends; no silence is shorter than three PINGs.
	Idle time.Duration
	// ActivePing is the time between PINGs on a lane with open streams, 1 s by default; its connection is dead after
	// three of them. Negative: as idle lanes.
	ActivePing time.Duration
	// ResumeTimeout is how long a lane may be without a connection, 10 s by default, 90 s at most; the shorter one of
	// both ends holds. Negative: the death of a connection ends its streams.
	ResumeTimeout time.Duration
	// GapMax is the longest that bulk records wait so that writes merge, 2 ms by default, up to 5 ms. Negative: off.
	GapMax time.Duration
	// NoUrgent turns off that control and first records go before bulk, and that what a full window waits for does not
	// wait for the gap.
	NoUrgent bool
	// NoInlineWrite turns off that Flush writes by itself on planes that can write without blocking.
	NoInlineWrite bool
	// OnDemand makes a FrontendNode dial a peer at its first stream instead of at once.
	OnDemand bool

	// Logger takes what happens to lanes and links; nil discards.
	Logger *slog.Logger
}

// Defaults.
const (
	DefaultWindow      = 64 << 10
	DefaultMaxBuffered = 1 << 30
	DefaultMaxReplay   = 1 << 30
	DefaultLog         = 4 << 20
	DefaultMaxRecord   = 16 << 20
	DefaultShrink      = 1 << 20
	DefaultMaxStreams  = 65536
	DefaultMaxLinks    = 1024
	windowShare        = 1024 // the share of what is free that a stream gets at most
	DefaultKeepAlive   = 5 * time.Second
	DefaultIdle        = 15 * time.Second
	DefaultActivePing  = time.Second
	DefaultResume      = 10 * time.Second
	DefaultGapMax      = 2 * time.Millisecond
	MaxLanes           = wire.MaxLanes
	MinWindow          = wire.MinWindow
	MaxWindow          = wire.MaxWindow
	MinShrink          = 64 << 10
	MaxShrink          = 1 << 30
)

// Validate joins everything that is wrong with the configuration.
func (c Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("mux: "+format, a...)) }
	number := func(v *int, def, low, high int, name string) {
		if *v == 0 {
			*v = def
		}
		if *v < low || *v > high {
			bad("%s is %d, allowed are %d to %d", name, *v, low, high)
		}
	}
	span := func(v *time.Duration, def, high time.Duration, name string) {
		switch {
		case *v == 0:
			*v = def
		case *v < 0:
			*v = 0
		}
		if *v > high {
			bad("%s is %v, at most %v is allowed", name, *v, high)
		}
	}
	if c.ID.IsZero() {
		bad("ID is missing")
	}
	number(&c.Lanes, 1, 1, MaxLanes, "Lanes")
	for plane, n := range c.PlaneLanes {
		if n < 1 || n > MaxLanes {
			bad("PlaneLanes[%s] is %d, allowed are 1 to %d", plane, n, MaxLanes)
		}
	}
	number(&c.Window, DefaultWindow, wire.MinWindow, wire.MaxWindow, "Window")
	number(&c.Log, DefaultLog, wire.MinLog, wire.MaxLog, "Log")
	number(&c.MaxRecord, DefaultMaxRecord, 1, 1<<30, "MaxRecord")
	number(&c.ShrinkThreshold, DefaultShrink, MinShrink, MaxShrink, "ShrinkThreshold")
	number(&c.MaxStreams, DefaultMaxStreams, 1, wire.MaxIndex, "MaxStreams")
	number(&c.MaxLinks, DefaultMaxLinks, 1, 1<<20, "MaxLinks")
	if c.MaxBuffered == 0 {
		c.MaxBuffered = DefaultMaxBuffered
	}
	if c.MaxReplay == 0 {
		c.MaxReplay = DefaultMaxReplay
	}
	if c.MaxBuffered < windowShare*wire.MinWindow {
		bad("MaxBuffered is %d: below %d (%d windows of the least size) no stream ever gets a window",
			c.MaxBuffered, windowShare*wire.MinWindow, windowShare)
	}
	if c.MaxReplay < wire.MinWindow {
		bad("MaxReplay is %d: it must hold at least one window of %d", c.MaxReplay, wire.MinWindow)
	}
	span(&c.KeepAlive, DefaultKeepAlive, wire.MaxPing, "KeepAlive")
	span(&c.Idle, DefaultIdle, 3*wire.MaxPing, "Idle")
	if c.KeepAlive < wire.MinPing || c.Idle <= c.KeepAlive {
		bad("Idle is %v and KeepAlive %v: a lane must see at least one PING before it is idle, which come every %v at "+
			"most, and neither can be off", c.Idle, c.KeepAlive, wire.MinPing)
	}
	span(&c.ActivePing, DefaultActivePing, time.Minute, "ActivePing")
	if c.ActivePing > 0 && c.ActivePing < wire.MinPing {
		bad("ActivePing is %v, at least %v is allowed", c.ActivePing, wire.MinPing)
	}
	span(&c.ResumeTimeout, DefaultResume, wire.MaxResume, "ResumeTimeout")
	span(&c.GapMax, DefaultGapMax, 5*time.Millisecond, "GapMax")
	c.Logger = seldom.Logger(c.Logger)
	return c, errors.Join(errs...)
}

// pings are the rules of liveness that this node would like.
func (c *Config) pings() wire.Pings {
	p := wire.Pings{Idle: c.KeepAlive, IdleSilence: c.Idle, Active: c.ActivePing, ActiveSilence: 3 * c.ActivePing}
	if c.ActivePing == 0 {
		p.Active, p.ActiveSilence = p.Idle, p.IdleSilence
	}
	return p
}
