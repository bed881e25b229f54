// Package planeflags declares the transport settings that every program takes, and builds from them the transports and
// the settings of the response plane. Only this package and the commands name concrete transports.
package planeflags

import (
	"errors"
	"fmt"
	"time"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/transport"
)

// group is the heading of --help.
const group = "Transport settings"

// planeFlag is left out of Args: a cluster run gives each arm its own.
const planeFlag = "response-plane"

// Planes are the planes that a program can be told to use.
func Planes() []string { return []string{transport.PlaneTCP, transport.PlaneTLS, transport.PlaneQUIC} }

// Options adapt the flags to a program.
type Options struct {
	// Planes is the default of --response-plane; empty means quic,tls.
	Planes []string
	// FixedPlanes leaves --response-plane out: the program itself says which planes run when.
	FixedPlanes bool
	// Arms takes the reference arms too.
	Arms Arms
	// PlaneUsage is the help text of --response-plane; empty says that the first plane that both ends share is used.
	PlaneUsage string
}

// Arms says how a program takes reference arms.
type Arms int

// How they are taken.
const (
	NoArms    Arms = iota
	ArmAlone       // the one plane of --response-plane may be an arm
	ArmsAmong      // --response-plane lists what is run one after the other, arms among it
)

// Flags are the declared flags of one program.
type Flags struct {
	app  *cli.App
	arms Arms

	planes                                      *[]string
	lanes, tcpLanes, quicLanes, serverEndpoints *int
	bindAddr, advertiseAddr                     *string
	udpRecv, udpSend, tcpRecv, tcpSend          *int64
	maxMTU                                      *int
	quicWindow, streamWindow                    *int64
	laneLog, maxReplay                          *int64
	keepAlive, idle, activePing, resume, gap    *time.Duration
	urgent, gro, gso                            *bool
	dial                                        *string
	shrink                                      *int64
	security                                    securityFlags
}

// Register declares the flags.
func Register(app *cli.App, o Options) *Flags {
	if len(o.Planes) == 0 {
		o.Planes = []string{transport.PlaneQUIC, transport.PlaneTLS}
	}
	if o.PlaneUsage == "" {
		o.PlaneUsage = "planes in order of preference: a link uses the first that both ends list and that connects; " +
			"tcp is not encrypted"
	}
	g := app.Group(group)
	lanes := cli.Range(1, 16).Unit("connections")
	override := lanes.OrZero("as --lanes")
	f := &Flags{app: app, arms: o.Arms}
	known := Planes()
	if o.Arms != NoArms {
		known = append(known, ArmNames()...)
		o.PlaneUsage += "; or a reference arm, for comparison: mux-tcp = a write for each pass, record-quic = a " +
			"write for each record, interval-quic = a write each 5 ms; none has windows, cancel or failover"
	}

	if f.planes = &o.Planes; !o.FixedPlanes {
		f.planes = g.EnumList(planeFlag, o.Planes, known, o.PlaneUsage)
	}
	f.lanes = g.Int("lanes", 1, lanes, "frontend: connections to each worker process")
	f.tcpLanes = g.Int("tcp-lanes", 0, override, "frontend: overrides --lanes on the planes tcp and tls")
	f.quicLanes = g.Int("quic-lanes", 0, override, "frontend: overrides --lanes on the plane quic")
	f.serverEndpoints = g.Int("server-endpoints", 4, cli.Range(1, 64).Unit("sockets"),
		"worker: listening sockets of each plane, each on its own port")
	f.bindAddr = g.Addr("bind-addr", ":0",
		"worker: where it listens; port 0 lets the kernel choose each port, a fixed port P takes P, P+1, ...")
	f.advertiseAddr = g.Address("advertise-addr", "", "HOST",
		"worker: the host name or IP address that frontends dial; found by itself when empty", validHost)

	buffer := cli.Range(16*cli.KiB, 512*cli.MiB) // the kernel doubles it into an int32
	f.udpRecv = g.Size("udp-recv-buffer", 8*cli.MiB, buffer,
		"receive buffer of each UDP socket; the kernel caps it at net.core.rmem_max")
	f.udpSend = g.Size("udp-send-buffer", 4*cli.MiB, buffer,
		"send buffer of each UDP socket; the kernel caps it at net.core.wmem_max")
	tuned := cli.Range(4*cli.KiB, 512*cli.MiB).OrZero("the kernel tunes")
	f.tcpRecv = g.Size("tcp-recv-buffer", 0, tuned, "receive buffer of each TCP socket")
	f.tcpSend = g.Size("tcp-send-buffer", 0, tuned, "send buffer of each TCP socket")
	f.maxMTU = g.Int("max-mtu", 0, cli.Range(1200, 1452).Unit("bytes").OrZero("path MTU discovery up to 1452").
		Why("because QUIC needs 1200 and the QUIC library never sends more than 1452"),
		"size of QUIC packets, without IP and UDP headers")
	f.quicWindow = g.Size("quic-stream-window", cli.MiB, cli.Range(64*cli.KiB, 64*cli.MiB),
		"QUIC flow control window of a lane; unless set, at most a quarter of the receive buffer that the kernel "+
			"granted, and 192KiB towards a worker")

	f.keepAlive = g.Duration("keep-alive-interval", 5*time.Second, cli.Range(100*time.Millisecond, time.Hour),
		"PING on a lane without open streams; of this and the next three the shorter one of both ends holds")
	f.idle = g.Duration("idle-timeout", 15*time.Second, cli.Range(300*time.Millisecond, time.Hour),
		"the connection of a lane without open streams that stays silent so long is dead")
	f.activePing = g.Duration("active-ping-interval", time.Second, cli.Range(100*time.Millisecond,
		time.Minute).OrZero("as without open streams"),
		"PING on a lane with open streams; three without an answer and its connection is dead")
	f.resume = g.Duration("resume-timeout", 10*time.Second,
		cli.Range(time.Millisecond, 90*time.Second).OrZero("the death of a connection ends its streams"),
		"how long a lane may be without a connection")
	f.laneLog = g.Size("lane-log", 4*cli.MiB, cli.Range(256*cli.KiB, 64*cli.MiB),
		"what a lane keeps, each way, of what was sent and not acknowledged; full, it waits")
	f.maxReplay = g.Size("max-replay-bytes", cli.GiB, cli.Range(256*cli.KiB, cli.TiB),
		"worker: stream windows and lane logs that it commits to; past it requests are refused as busy")
	f.streamWindow = g.Size("stream-window", 64*cli.KiB, cli.Range(4*cli.KiB, 16*cli.MiB),
		"bytes of one response that the consumer has not taken yet")
	f.gap = g.Duration("batch-gap-max", 2*time.Millisecond, cli.Range(0, 5*time.Millisecond).OrZero("off"),
		"the longest that a write waits for more records")
	f.urgent = g.Bool("urgent", true,
		"first records and control overtake other records, and what a full window waits for does not wait for "+
			"--batch-gap-max")
	f.gro = g.Bool("quic-gro", true, "UDP receive offload, where the kernel has it")
	f.gso = g.Bool("quic-gso", true, "UDP send offload, where the kernel has it")
	f.shrink = g.Size("shrink-threshold", cli.MiB, cli.Range(64*cli.KiB, cli.GiB),
		"frontend: a buffer that one large record has grown beyond this is given back")
	f.dial = g.Enum("dial", dialEager, []string{dialEager, dialOnDemand},
		"frontend: when workers are dialled; on-demand dials at the first request and closes after 10 idle minutes")
	f.security.register(g)
	app.Check(f.check)
	return f
}

const (
	dialEager    = "eager"
	dialOnDemand = "on-demand"
)

// check looks at what single ranges cannot see.
func (f *Flags) check() error {
	var errs []error
	if *f.keepAlive >= *f.idle {
		errs = append(errs,
			fmt.Errorf("--keep-alive-interval %s is not below --idle-timeout %s: every idle lane would die before "+
				"its next PING; use a third of the timeout or less",
				cli.FormatDuration(*f.keepAlive), cli.FormatDuration(*f.idle)))
	}
	if f.arms == ArmAlone {
		errs = append(errs, checkArms(*f.planes))
	}
	return errors.Join(append(errs, f.checkBind(), f.security.check(*f.planes))...)
}

// Settings are the values after parsing.
type Settings struct {
	Planes []string // --response-plane

	Lanes, TCPLanes, QUICLanes int // the latter two 0 = as Lanes
	ServerEndpoints            int
	BindAddr, AdvertiseAddr    string // AdvertiseAddr "" = found

	// Bytes; TCP buffers 0 = the kernel tunes, MaxMTU 0 = discovery, QUICStreamWindow 0 = not set by the user.
	UDPRecvBuffer, UDPSendBuffer, TCPRecvBuffer, TCPSendBuffer int
	MaxMTU, QUICStreamWindow                                   int

	// ActivePing 0 = as without open streams, Resume 0 = none, BatchGap 0 = off.
	KeepAlive, Idle, ActivePing, Resume, BatchGap time.Duration

	StreamWindow     int   // bytes
	LaneLog          int   // bytes, each way
	MaxReplay        int64 // bytes
	ShrinkThreshold  int   // bytes; 0 = the default
	Urgent, GRO, GSO bool
	DialOnDemand     bool

	// CA mode; all "" = pins.
	TLSCA, TLSCert, TLSKey, PeerName string
	TLSCurves                        []string // names of transport.Curves; none = X25519
}

// Settings reads the flags; call it after they were parsed.
func (f *Flags) Settings() Settings {
	s := Settings{
		Planes: *f.planes,
		Lanes:  *f.lanes, TCPLanes: *f.tcpLanes, QUICLanes: *f.quicLanes, ServerEndpoints: *f.serverEndpoints,
		BindAddr: *f.bindAddr, AdvertiseAddr: *f.advertiseAddr,
		UDPRecvBuffer: int(*f.udpRecv), UDPSendBuffer: int(*f.udpSend),
		TCPRecvBuffer: int(*f.tcpRecv), TCPSendBuffer: int(*f.tcpSend),
		MaxMTU:    *f.maxMTU,
		KeepAlive: *f.keepAlive, Idle: *f.idle, ActivePing: *f.activePing, Resume: *f.resume, BatchGap: *f.gap,
		StreamWindow: int(*f.streamWindow), LaneLog: int(*f.laneLog), MaxReplay: *f.maxReplay, Urgent: *f.urgent,
		GRO: *f.gro, GSO: *f.gso,
		DialOnDemand: *f.dial == dialOnDemand, ShrinkThreshold: int(*f.shrink),
		TLSCA: *f.security.ca, TLSCert: *f.security.cert, TLSKey: *f.security.key, PeerName: *f.security.peerName,
		TLSCurves: *f.security.curves,
	}
	if f.app.Source("quic-stream-window") != cli.FromDefault {
		s.QUICStreamWindow = int(*f.quicWindow)
	}
	return s
}

// Args writes the settings as flags for a program that is started with the same ones, without --response-plane. Only
// those that were set are named, so that defaults stay defaults.
func (f *Flags) Args() []string {
	var args []string
	values := f.app.Values()
	for _, name := range f.app.Group(group).Names() {
		if name != planeFlag && f.app.Source(name) != cli.FromDefault {
			args = append(args, "--"+name+"="+values[name])
		}
	}
	return args
}

// PlaneLanes are the planes whose number of lanes is not Lanes.
func (s Settings) PlaneLanes() map[string]int {
	m := make(map[string]int)
	if s.TCPLanes > 0 {
		m[transport.PlaneTCP], m[transport.PlaneTLS] = s.TCPLanes, s.TCPLanes
	}
	if s.QUICLanes > 0 {
		m[transport.PlaneQUIC] = s.QUICLanes
	}
	return m
}
