package httpbench

import (
	"github.com/laneway-ai/laneway/bench/peers"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/transport"
)

// Arm is one way for the tokens to come to the HTTP frontend.
type Arm struct {
	Name string
	// Plane is Laneway's, Peer another one's; of neither, the engines are in the frontend's process.
	Plane string
	Peer  *planebench.Peer
	// Sink says that a peer's records are written by who brings them; else a goroutine for each response is woken.
	Sink bool
}

// Names of arms that others are compared with.
const (
	InProcess  = "in-process"
	LanewayTCP = "laneway-tcp"
)

func laneway(plane string) string { return "laneway-" + plane }
func bare(plane string) string    { return "bare-" + plane }

// planes are those that Laneway and the bare connection run over.
func planes() []string { return []string{transport.PlaneTCP, transport.PlaneQUIC} }

// Arms are all arms, the floor first.
func Arms() []Arm {
	arms := []Arm{{Name: InProcess}}
	for _, p := range planes() {
		peer := peers.Bare(p)
		arms = append(arms, Arm{Name: laneway(p), Plane: p}, Arm{Name: bare(p), Peer: &peer, Sink: true})
	}
	for _, peer := range []planebench.Peer{peers.GRPC(), peers.TCPConnection()} {
		arms = append(arms, Arm{Name: peer.Name, Peer: &peer})
	}
	return arms
}

// Names are those of arms.
func Names(arms []Arm) (names []string) {
	for _, a := range arms {
		names = append(names, a.Name)
	}
	return names
}

func armNamed(arms []Arm, name string) (Arm, bool) {
	for _, a := range arms {
		if a.Name == name {
			return a, true
		}
	}
	return Arm{}, false
}

// inProcess says whether there are no worker processes.
func (a Arm) inProcess() bool { return a.Plane == "" && a.Peer == nil }

// over is the plane whose transport the arm needs, "" for none.
func (a Arm) over() string {
	if a.Peer != nil {
		return a.Peer.Over
	}
	return a.Plane
}

// peerConfig is what a process tells its peer.
func (c *child) peerConfig() planebench.PeerConfig {
	cfg := planebench.PeerConfig{Index: c.cfg.Index, Delivery: planebench.Pull, Log: c.log,
		Load: planebench.Load{Concurrency: c.cfg.Load.Streams, Engines: c.cfg.Load.Engines, OSL: c.cfg.Load.OSL,
			TokenBytes: c.cfg.Load.TokenBytes, Interval: c.cfg.Load.Interval}}
	if c.arm.Sink {
		cfg.Delivery = planebench.Sink
	}
	if len(c.transports) > 0 {
		cfg.Transport = c.transports[0]
	}
	return cfg
}
