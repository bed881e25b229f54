// Package accept is a worker's side of links: it accepts the connections of frontends, does their handshakes, and gives
// each lane one connection at a time. It knows pipes and no streams.
//
//	acceptLoop   takes a place of handshakes, which strangers cannot keep (places.go)
//	welcome      reads and checks HELLO (handshake.go)
//	find         finds or makes its link, within the bounds of an address and of a node (register.go)
//	takeOver     in the lane's turn: stops the connection before, answers, starts the new one (takeover.go)
//	Tick         silence, and lanes and links that were held for long enough (hold.go)
//	end          says why, stops all lanes, and tells the layer above once (end.go)
package accept

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Config has the settings of a worker's links. It is not checked: who makes it has.
type Config struct {
	ID         transport.NodeID
	MaxStreams int // of a link; HELLO says it
	MaxLinks   int // see maxOfAddress and maxOfNode for the share of one party
	Log        int // of HELLO: own log limit
	// Resume is this side's resume timeout; what HELLO agrees on is the shorter one.
	Resume time.Duration
	Pings  wire.Pings // own; HELLO agrees
	Pipe   pipe.Config
	// Now is the node's monotonic time in nanoseconds, above 0.
	Now func() int64
	// Logger takes what others can cause at will, so it must bound what it writes of a kind: messages are constants.
	// nil discards.
	Logger *slog.Logger
}

// Owner is the layer above.
type Owner interface {
	// Begin is called once for a new link, before a lane of it reads. The link's lanes have their pipes after it.
	Begin(k *Link) Streams
}

// Streams are those of one link. They are called with no lock held, and must not wait.
type Streams interface {
	// Lane is called once for each lane, right after Begin.
	Lane(i int) pipe.Handler
	// LaneLost says that the lane's hold is over, once for each loss of its connection and each Touch after one.
	LaneLost(i int, why string)
	// Lost says that the link has ended, for good: the last call. No lane has a connection, and all that the pipes hold
	// is discarded behind it.
	Lost(why string, protocol bool)
	// Open is how many streams are open: with some, silence is noticed sooner.
	Open() int
}

// Links are all links of a worker. Methods may be called concurrently.
type Links struct {
	cfg    Config
	owner  Owner
	log    *slog.Logger
	ctx    context.Context // of handshakes; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // accept loops, handshakes, and what a connection's end has to be done
	closed chan struct{}  // Close is through

	places places
	counts counters

	mu        sync.Mutex
	register  register
	listeners []transport.Listener
	draining  string // not "": the reason
	closing   bool
	links     atomic.Pointer[[]*Link]      // those that have begun, copied on change
	pipes     atomic.Pointer[[]*pipe.Pipe] // of all their lanes
}

// New makes Links. They do nothing until Serve.
func New(cfg Config, owner Owner) *Links {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Links{cfg: cfg, owner: owner, log: cfg.Logger, closed: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.register.init(cfg.MaxLinks)
	n.links.Store(&[]*Link{})
	n.pipes.Store(&[]*pipe.Pipe{})
	return n
}

// Link is the link of a node with that number, nil if there is none.
func (n *Links) Link(peer transport.NodeID, number uint64) *Link {
	n.mu.Lock()
	k := n.register.links[linkKey{peer, number}]
	n.mu.Unlock()
	if k == nil || !k.begun.Load() {
		return nil
	}
	return k
}

// Newest is the link of a node to ask for what is of no link, nil if none has a connection: of those of which the plane
// has proven the node the one with the highest number, else the one that was begun first. So nobody gets before a
// frontend by claiming its NodeID.
func (n *Links) Newest(peer transport.NodeID) (newest *Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.register.nodes[peer] {
		switch {
		case !k.begun.Load() || !k.up():
		case newest == nil, k.proven && (!newest.proven || k.number > newest.number):
			newest = k
		}
	}
	return newest
}

// Links are all links that have begun and not ended. The slice is shared.
func (n *Links) Links() []*Link { return *n.links.Load() }

// Pipes are those of all lanes of Links, with a connection or without. The slice is shared.
func (n *Links) Pipes() []*pipe.Pipe { return *n.pipes.Load() }

// spawn runs fn, which Close joins. Once Close has begun it does nothing: Close ends all links itself.
func (n *Links) spawn(fn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closing {
		n.wg.Go(fn)
	}
}
