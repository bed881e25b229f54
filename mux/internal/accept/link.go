package accept

import (
	"crypto/subtle"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Link is everything between this worker and one frontend. Its lanes are fixed.
type Link struct {
	links   *Links
	peer    transport.NodeID
	number  uint64
	proven  bool // the plane of its first connection has proven peer
	remote  net.Addr
	address netip.Prefix // of remote
	first   uint16       // the lane that was dialled first
	own     [16]byte     // secrets
	theirs  [16]byte
	lanes   []*Lane
	streams Streams
	begun   atomic.Bool // the layer above has it, and its lanes have pipes; before that their turns are taken
	busy    int64       // the ticker's: since when streams are open, 0 = none are

	mu    sync.Mutex
	gone  bool // it ends or has ended: no connection joins it
	named bool // somebody has named its secrets, so its first HELLO is not repeated any more
	hold  time.Duration
}

// Lane is one lane of a link.
type Lane struct {
	link  *Link
	index int
	pipe  *pipe.Pipe
	turn  chan struct{} // capacity 1: held by who takes the lane over or stops its connection
	down  atomic.Int64  // node time since when it has no connection, 0 = it has one
	touch atomic.Int64  // node time of the last Touch
	claim uint64        // highest serial that had the secrets; the link's lock guards these
	lost  int64         // of which loss LaneLost was told
	past  []Connection  // newest last
}

// Connection is one that a lane has or had. Times are node times; To is 0 while it lasts.
type Connection struct {
	Plane         string
	Serial        uint64
	Local, Remote net.Addr
	From, To      int64
}

// maxPast is how many connections a lane remembers.
const maxPast = 8

func (n *Links) newLink(h *wire.HelloBody, s *shaking) *Link {
	k := &Link{
		links: n, peer: transport.NodeID(h.Node), number: h.Link, proven: s.info.Proven, remote: s.info.Remote,
		address: addressOf(s.info.Remote), first: h.Lane, own: pipe.NewSecret(), theirs: h.OwnSecret,
	}
	k.agree(h)
	now := n.cfg.Now()
	for i := range int(h.Lanes) {
		l := &Lane{link: k, index: i, turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		l.down.Store(now)
		k.lanes = append(k.lanes, l)
	}
	k.lanes[h.Lane].claim = h.Serial
	return k
}

// holdMargin is by how much a lane is held longer than its frontend may take to find out and come back.
const holdMargin = 5 * time.Second

// agree takes what a HELLO says of times. The lock is held, or nobody else has the link.
func (k *Link) agree(h *wire.HelloBody) {
	c := &k.links.cfg
	k.hold = min(c.Resume, h.Resume) + c.Pings.Agree(h.Pings).IdleSilence + holdMargin
}

// admit checks the HELLO of a connection that wants to join the link.
func (k *Link) admit(h *wire.HelloBody, info *transport.ConnInfo) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := h.PeerSecret == [16]byte{}
	again := subtle.ConstantTimeCompare(k.theirs[:], h.OwnSecret[:]) == 1 && !k.named && h.Lane == k.first
	switch {
	case k.gone, !first && !pipe.SameSecrets(k.own, k.theirs, h):
		return unknownLink(h)
	case first && !again:
		return refuse(wire.AwayUnknownLink, "link %d of node %s exists, and its secrets must be named", h.Link, k.peer)
	case k.proven && !info.Proven:
		return refuse(wire.AwayIdentity, "link %d was begun where identities are proven, unlike %s", h.Link, info.Plane)
	case int(h.Lane) >= len(k.lanes):
		return refuse(wire.AwayLimit, "lane %d of link %d, which has %d", h.Lane, h.Link, len(k.lanes))
	}
	l := k.lanes[h.Lane]
	if h.Serial <= l.claim {
		return oldSerial(h, l.claim)
	}
	l.claim = h.Serial
	k.named = k.named || !first
	k.agree(h)
	return nil
}

func (k *Link) up() bool {
	for _, l := range k.lanes {
		if l.Up() {
			return true
		}
	}
	return false
}

// Peer and Number name the link.
func (k *Link) Peer() transport.NodeID { return k.peer }
func (k *Link) Number() uint64         { return k.number }

// Secrets are this side's and the frontend's.
func (k *Link) Secrets() (own, peer [16]byte) { return k.own, k.theirs }

// Lanes are the link's. The slice is shared.
func (k *Link) Lanes() []*Lane { return k.lanes }

// Pipe is the lane's.
func (l *Lane) Pipe() *pipe.Pipe { return l.pipe }

// Up says whether the lane has a connection.
func (l *Lane) Up() bool { return l.down.Load() == 0 }

// Touch says that a stream has come to the lane, which holds it for longer if it has no connection.
func (l *Lane) Touch() { l.touch.Store(l.link.links.cfg.Now()) }

// Connections are those that the lane has had, the newest last, at most 8.
func (l *Lane) Connections() []Connection {
	l.link.mu.Lock()
	defer l.link.mu.Unlock()
	return append([]Connection(nil), l.past...)
}

// Plane is that of the newest connection, "" before there was one.
func (l *Lane) Plane() string {
	l.link.mu.Lock()
	defer l.link.mu.Unlock()
	if len(l.past) == 0 {
		return ""
	}
	return l.past[len(l.past)-1].Plane
}
