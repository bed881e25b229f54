package dial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Link is everything between this node and one life of a worker node. Lost is final; a new link has a new number.
type Link struct {
	peer      *peer
	recv      *Peers
	number    uint64
	ownSecret [16]byte
	lanes     []*Lane
	ctx       context.Context // ends when the link has ended
	cancel    context.CancelFunc

	// Fixed once the first answer was read.
	streams    Streams
	peerSecret [16]byte
	maxStreams int
	proven     bool // it began on a plane that proves identity

	resume   atomic.Int64 // agreed, in nanoseconds
	draining atomic.Bool
	suspect  atomic.Int64   // node time of a Suspect that is not settled; 0 = none
	keepers  sync.WaitGroup // of the lanes
	calls    sync.WaitGroup // of Streams, under way

	mu    sync.Mutex
	ended *ending // nil while it lives
	planes
	use
}

// ending is why a link has ended.
type ending struct {
	why      string
	protocol bool
	// forgotten: the worker does not know the link, and so takes another one.
	forgotten bool
	away      wire.GoAwayCode // what the worker is told on each lane that is up; AwayDraining: nothing
}

// goodbyeTimeout is how long a lane may take to say that its link has ended.
const goodbyeTimeout = 250 * time.Millisecond

// newLink makes a link that has no answer yet. Its first HELLO is repeated until it has one.
func (p *peer) newLink(plane string) *Link {
	k := &Link{peer: p, recv: p.recv, number: p.recv.linkNumber.Add(1), ownSecret: pipe.NewSecret()}
	k.plane, k.every = plane, preferAgain
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.lanes = make([]*Lane, p.recv.cfg.lanesFor(plane))
	for i := range k.lanes {
		k.lanes[i] = newLane(k, i)
	}
	return k
}

// hello is this side's HELLO for the next connection of a lane.
func (k *Link) hello(lane int, received uint64) *wire.HelloBody {
	cfg := &k.recv.cfg
	return &wire.HelloBody{Lowest: wire.MinVersion, Highest: wire.MaxVersion, Node: cfg.ID, Link: k.number,
		Lane: uint16(lane), Lanes: uint16(len(k.lanes)), MaxStreams: maxStreams, Serial: k.recv.serial.Add(1),
		Received: received, Log: cfg.Log, Resume: cfg.Resume, Pings: cfg.Pings,
		OwnSecret: k.ownSecret, PeerSecret: k.peerSecret}
}

// maxStreams is how many streams this side allows on a link.
const maxStreams = 65536

// first does the handshake of the link's first connection, which begins it.
func (k *Link) first(ctx context.Context, conn transport.Conn) error {
	own := k.hello(0, 0)
	peer, err := k.exchange(ctx, conn, own)
	switch {
	case err != nil:
		return err
	case peer.Received > 0:
		return &wire.Error{Kind: wire.Hello, Reason: fmt.Sprintf("says %d bytes received of a new link", peer.Received)}
	case !k.peer.connected():
		return errRenewed
	}
	k.peerSecret, k.maxStreams, k.proven = peer.OwnSecret, int(min(peer.MaxStreams, wire.MaxIndex)), conn.Info().Proven
	k.usedAt = k.recv.cfg.Now()
	k.streams = k.recv.owner.Begin(k)
	for i, l := range k.lanes {
		l.pipe = pipe.New(k.recv.cfg.Pipe, k.streams.Lane(i), l)
		l.downAt.Store(k.usedAt)
	}
	k.peer.link.Store(k)
	return k.lanes[0].start(conn, own, peer)
}

// serve runs a link until it has ended, and returns when the streams know.
func (k *Link) serve() {
	stop := context.AfterFunc(k.peer.ctx, func() {
		k.lose(ending{why: "the node was removed", away: wire.AwayClosing})
	})
	defer stop()
	for _, l := range k.lanes {
		k.keepers.Go(l.keep)
	}
	k.preferBetter()
	k.calls.Wait()
	k.streams.Lost(k.ended.why, k.ended.protocol)
	k.peer.links.Go(func() { // a stuck application holds up its own lane, and no new link
		k.keepers.Wait()
		for _, l := range k.lanes {
			l.pipe.Discard()
		}
	})
}

// lose marks the link as ended; the first reason counts. It never waits.
func (k *Link) lose(e ending) {
	k.mu.Lock()
	if k.ended == nil {
		k.ended = &e
	}
	k.mu.Unlock()
	k.cancel()
}

// end is why the link has ended, nil while it lives.
func (k *Link) end() *ending {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// tell calls the streams, unless they know or will know that the link has ended.
func (k *Link) tell(call func(Streams)) {
	k.mu.Lock()
	if k.ended != nil {
		k.mu.Unlock()
		return
	}
	k.calls.Add(1)
	k.mu.Unlock()
	defer k.calls.Done()
	call(k.streams)
}

// verdict says how the link ends by what came of one of its connections, nil if it goes on. What is said in the place
// of a HELLO may be another node's word, and counts only when no lane has a connection. That nobody listens on any port
// of a plane says something only together with the other planes.
func (k *Link) verdict(err error) *ending {
	var down *pipe.DownError
	var away *pipe.AwayError
	var identity *transport.IdentityError
	live := errors.As(err, &down)
	switch {
	case live && down.Reason == pipe.DownProtocol:
		return &ending{why: down.Err.Error(), protocol: true, away: wire.AwayProtocol}
	case errors.As(err, &away) && away.Code == wire.AwayProtocol:
		return &ending{why: away.Error(), protocol: true, away: wire.AwayProtocol}
	case !live && k.holds():
	case away != nil && (away.Code == wire.AwayUnknownLink || away.Code == wire.AwayClosing):
		return &ending{why: away.Error(), forgotten: away.Code == wire.AwayUnknownLink}
	case errors.As(err, &identity):
		return &ending{why: identity.Error()}
	}
	return nil
}

// holds says whether a lane has a connection, or is about to exchange it for another.
func (k *Link) holds() bool {
	for _, l := range k.lanes {
		if l.state.Load() != laneDown {
			return true
		}
	}
	return false
}

// up is how many lanes have a connection.
func (k *Link) up() (n int) {
	for _, l := range k.lanes {
		if l.Up() {
			n++
		}
	}
	return n
}

// Takes says why no new stream may be minted, nil if one may.
func (k *Link) Takes() error {
	switch {
	case k.end() != nil:
		return fmt.Errorf("%w: to node %s: %s", ErrNoLink, k.peer.id, k.end().why)
	case k.up() == 0:
		return fmt.Errorf("%w: to node %s: no lane is up", ErrNoLink, k.peer.id)
	case k.draining.Load():
		return fmt.Errorf("%w: node %s", ErrDraining, k.peer.id)
	}
	return nil
}

// DownSince is the node time since when no lane is up, 0 = one is.
func (k *Link) DownSince() (at int64) {
	for _, l := range k.lanes {
		since := l.DownSince()
		if since == 0 {
			return 0
		}
		at = max(at, since)
	}
	return at
}

// Peer is the worker node, Name what people call it, and Number what HELLO says the link is.
func (k *Link) Peer() transport.NodeID { return k.peer.id }
func (k *Link) Name() string           { return k.peer.name() }
func (k *Link) Number() uint64         { return k.number }

// Secrets are this side's and the worker's.
func (k *Link) Secrets() (own, peer [16]byte) { return k.ownSecret, k.peerSecret }

// MaxStreams is how many streams the worker allows.
func (k *Link) MaxStreams() int { return k.maxStreams }

// Lanes are the link's lanes, as many for as long as it lives.
func (k *Link) Lanes() []*Lane { return k.lanes }
