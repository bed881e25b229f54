package dial

import (
	"errors"
	"log/slog"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Config has the settings of a node's links. It is not checked: who makes it has.
type Config struct {
	ID transport.NodeID
	// Lanes is how many a link has. PlaneLanes overrides it by the plane of the link's first connection.
	Lanes      int
	PlaneLanes map[string]int
	// Log is how many bytes a lane keeps for sending again, as HELLO says it.
	Log int
	// Resume is how long a lane may be without a connection; the shorter of what both ends say holds. 0: a connection's
	// death ends the streams of its lane.
	Resume   time.Duration
	Pings    wire.Pings
	OnDemand bool // dial a node when somebody asks for its link instead of at once
	Pipe     pipe.Config
	Now      func() int64 // node time
	Logger   *slog.Logger
}

// lanesFor is how many lanes a link has that begins on a plane.
func (c *Config) lanesFor(plane string) int {
	if n := c.PlaneLanes[plane]; n > 0 {
		return n
	}
	return max(c.Lanes, 1)
}

// Owner is the layer above.
type Owner interface {
	// Begin is called once for each new link, before a lane of it reads.
	Begin(*Link) Streams
}

// Streams is what the layer above has of one link. It is called with no lock held, and must not wait.
type Streams interface {
	// Lane is the handler of a lane's pipe. It is asked for once for each, right after Begin.
	Lane(i int) pipe.Handler
	// LaneUp says that lane i has a connection, or has one again.
	LaneUp(i int)
	// LaneLost says that lane i had no connection for the agreed resume timeout. It is dialled on. Once until it was
	// up.
	LaneLost(i int, why string)
	// Lost says that the link has ended, for good. It is the last call. Lanes may still be stopping, each at its pace:
	// what their handlers get is of no more use, and what is appended is discarded.
	Lost(why string, protocol bool)
	// Open is how many streams are open: the pace of PINGs, and whether a link that was dialled on demand is in use.
	Open() int
}

// Errors of links.
var (
	// ErrNoLink: there is no link to that node, or none of its lanes is up.
	ErrNoLink = errors.New("mux: no link")
	// ErrDraining: the node takes no new streams.
	ErrDraining = errors.New("mux: draining")
	// ErrClosed: Close was called, or the node was removed.
	ErrClosed = errors.New("mux: closed")
)

// Peer says where a node can be reached.
type Peer struct {
	ID     transport.NodeID
	Name   string
	Planes []PeerPlane
	// Network is what the node says that its transport.LocalNetwork is, "" when it does not: its loopback addresses are
	// dialled only if it is this process's too.
	Network string
	// Alternatives are what else is said of where the node is, when what names it disagrees; only Planes and Network of
	// each count. A link that is up keeps to what it was made over; a dial that fails has the next one tried.
	Alternatives []Peer
}

// PeerPlane is one plane of a peer and its endpoints.
type PeerPlane struct {
	Plane     string
	Endpoints []string // host:port; lane k dials endpoint (offset + k) mod n
}

// State describes a peer.
type State struct {
	ID    transport.NodeID
	Name  string
	Up    bool   // a lane is up
	Plane string // of the link, when there is one
	// Fallback is why the link is not on the first plane that both sides have, nil when it is.
	Fallback error
	Lanes    int // lanes that are up
	Streams  int // that are open
	// Draining: the node takes no new streams.
	Draining bool
	// Err is why the node cannot be reached, nil when it can or was not tried.
	Err error
	// Down is since when no lane is up, zero while one is.
	Down time.Duration
}
