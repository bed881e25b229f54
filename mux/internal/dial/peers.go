package dial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Peers are the nodes that this one dials, and the links to them. Methods may be called concurrently.
type Peers struct {
	cfg        Config
	owner      Owner
	log        *slog.Logger
	transports []transport.Transport
	serial     atomic.Uint64 // of connections; only grows
	linkNumber atomic.Uint64
	gates      gates
	files      files
	network    string // transport.LocalNetwork
	stats      counters

	mu      sync.Mutex
	peers   map[transport.NodeID]*peer
	refused map[transport.NodeID]Peer // those that Add refused
	closing bool
	running sync.WaitGroup // of peers, those that were removed included
}

// New makes Peers over the transports, in order of preference.
func New(cfg Config, owner Owner, transports ...transport.Transport) *Peers {
	r := &Peers{cfg: cfg, owner: owner, log: cfg.Logger, transports: transports, gates: newGates(),
		network: transport.LocalNetwork(), peers: make(map[transport.NodeID]*peer),
		refused: make(map[transport.NodeID]Peer)}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Add adds a node, or replaces what is known of where it is, and dials it in the background. It fails with a
// *NoPlaneError when no plane of the node is one of this side's, and with a *NoAddressError when nobody can be reached
// at any address of those. Such a node stands among States with the error until it is added again or removed, unless
// one of its Alternatives is better.
func (r *Peers) Add(p Peer) error {
	if p.ID.IsZero() {
		return errors.New("mux: a peer needs an ID")
	}
	first := len(r.shared(p)) > 0
	usable := first || slices.ContainsFunc(p.Alternatives, func(o Peer) bool { return len(r.shared(o)) > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return ErrClosed
	}
	old := r.peers[p.ID]
	if old != nil {
		old.update(p) // an open link goes on whatever the record says
	}
	if !usable {
		if old == nil {
			r.refused[p.ID] = p
		}
		return r.unusable(p)
	}
	delete(r.refused, p.ID)
	if old == nil {
		n := newPeer(r, p)
		r.peers[p.ID] = n
		r.running.Go(n.run)
	}
	if !first {
		return r.unusable(p)
	}
	return nil
}

// Remove forgets a node: its link ends as lost and its lanes close, the worker being told. It does not wait for that,
// so it may be called from anywhere; the channel is closed when all of it is over.
func (r *Peers) Remove(id transport.NodeID) <-chan struct{} {
	r.mu.Lock()
	p := r.peers[id]
	delete(r.peers, id)
	delete(r.refused, id)
	r.mu.Unlock()
	if p == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	p.cancel()
	return p.ended
}

func (r *Peers) peer(id transport.NodeID) *peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers[id]
}

// known is a peer, or why there is none.
func (r *Peers) known(id transport.NodeID) (*peer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		return p, nil
	}
	if r.closing {
		return nil, ErrClosed
	}
	return nil, fmt.Errorf("%w: node %s is not known", ErrNoLink, id)
}

func (r *Peers) snapshot() []*peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.peers))
}

// Link is the node's link for a new stream. It fails with ErrNoLink, ErrDraining or ErrClosed. A node that is dialled
// on demand is waited for until ctx ends.
func (r *Peers) Link(ctx context.Context, id transport.NodeID) (*Link, error) {
	p, err := r.known(id)
	if err != nil {
		return nil, err
	}
	for {
		if r.cfg.OnDemand {
			if err := p.await(ctx); err != nil {
				return nil, err
			}
		}
		k := p.link.Load()
		if k == nil {
			err = fmt.Errorf("%w: to node %s: %v", ErrNoLink, id, p.state().Err)
		} else if err = k.taken(); err == nil {
			return k, nil
		}
		if !r.cfg.OnDemand || !errors.Is(err, ErrNoLink) || ctx.Err() != nil { // else it has just been closed
			return nil, err
		}
	}
}

// Await waits until a lane to the node is up.
func (r *Peers) Await(ctx context.Context, id transport.NodeID) error {
	p, err := r.known(id)
	if err != nil {
		return err
	}
	return p.await(ctx)
}

// AwaitReturn waits until the node takes streams. It fails with ErrNoLink as soon as UpSoon is not so, for a link that
// is without a lane after the resume timeout at the latest.
func (r *Peers) AwaitReturn(ctx context.Context, id transport.NodeID) error {
	p, err := r.known(id)
	if err != nil {
		return err
	}
	return p.until(ctx, p.outlook)
}

// outlook says whether the node's link takes streams, or will once it has a lane again.
func (r *Peers) outlook(id transport.NodeID) (now, soon bool) {
	if p := r.peer(id); p != nil {
		return p.outlook()
	}
	return false, false
}

// Up says whether a lane to the node is up and takes new streams.
func (r *Peers) Up(id transport.NodeID) bool {
	now, _ := r.outlook(id)
	return now
}

// UpSoon says whether the node's link takes streams, or may soon: it is without a lane and not lost, or there is none
// and one is being dialled while nothing speaks against it. That is so of a node that is new, that has other addresses
// than before, or that has just said that it does not know the link any more; a dial that fails speaks against it.
func (r *Peers) UpSoon(id transport.NodeID) bool {
	now, soon := r.outlook(id)
	return now || soon
}

// Links are all links.
func (r *Peers) Links() (all []*Link) {
	for _, p := range r.snapshot() {
		if k := p.link.Load(); k != nil {
			all = append(all, k)
		}
	}
	return all
}

// Close ends all links as lost, tells the workers, closes the lanes and joins every goroutine. Idempotent.
func (r *Peers) Close(text string) {
	r.mu.Lock()
	r.closing = true
	peers := r.peers
	r.peers, r.refused = make(map[transport.NodeID]*peer), make(map[transport.NodeID]Peer)
	r.mu.Unlock()
	for _, p := range peers {
		if k := p.link.Load(); k != nil {
			k.lose(ending{why: text, away: wire.AwayClosing})
		}
		p.cancel()
	}
	r.running.Wait()
}
