package mux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Receiver is the frontend side of a node: it dials the lanes to its peers and mints the terms of streams. Methods may be
// called concurrently.
type Receiver struct {
	node
	transports []transport.Transport
	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	committed  atomic.Int64 // windows given
	serial     atomic.Uint64
	linkNumber atomic.Uint64
	gates      gates
	files      files
	network    string // transport.LocalNetwork

	mu        sync.Mutex
	peers     map[transport.NodeID]*peer
	refused   map[transport.NodeID]Peer // those that AddPeer refused
	unclaimed map[[16]byte]*OpenStream  // open terms that may be claimed
	draining  bool
	closing   bool
}

// Peer says where a node can be reached.
type Peer struct {
	ID     transport.NodeID
	Name   string
	Planes []PeerPlane
	// Network is what the node says that its transport.LocalNetwork is, "" when it does not: its loopback addresses are
	// dialled only if it is this process's too.
	Network string
	// Alternatives are what else is said of where the node is, when what names it disagrees; only Planes and Network of each
	// count. A link that is up keeps to what it was made over; a dial that fails has the next one tried.
	Alternatives []Peer
}

// PeerPlane is one plane of a peer and its endpoints.
type PeerPlane struct {
	Plane     string
	Endpoints []string // host:port; lane k dials endpoint (offset + k) mod n
}

// PeerState describes a peer.
type PeerState struct {
	ID    transport.NodeID
	Name  string
	Up    bool   // a lane is up
	Plane string // of the link, when there is one
	// Fallback is why the link is not on the first plane that both sides have, nil when it is.
	Fallback error
	Lanes    int // lanes that are up
	// Streams is how many slots are taken.
	Streams int
	// Draining: the node takes no new streams.
	Draining bool
	// Err is why the node cannot be reached, nil when it can or was not tried.
	Err error
	// Down is since when no lane is up, zero while one is.
	Down time.Duration
}

// NewReceiver makes a Receiver over the transports, in order of preference.
func NewReceiver(cfg Config, transports ...transport.Transport) (*Receiver, error) {
	cfg, err := cfg.withDefaults()
	if len(transports) == 0 {
		err = errors.Join(err, errors.New("mux: a Receiver needs at least one transport"))
	}
	if err != nil {
		return nil, err
	}
	r := &Receiver{transports: transports, peers: make(map[transport.NodeID]*peer), refused: make(map[transport.NodeID]Peer),
		unclaimed: make(map[[16]byte]*OpenStream), gates: newGates(), network: transport.LocalNetwork()}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.node.init(cfg)
	r.stats.init()
	r.wg.Go(func() { r.runTicker(r.tick) })
	return r, nil
}

// AddPeer adds a node, or replaces what is known of its planes, and dials it in the background. It fails with a
// *NoPlaneError when no plane of the node is one of this Receiver's, and with a *NoAddressError when nobody can be reached
// at any address of those. Such a node stands among Peers with the error until it is added again or removed, unless one of
// its Alternatives is better.
func (r *Receiver) AddPeer(p Peer) error {
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
		r.wg.Go(n.run)
	}
	if !first {
		return r.unusable(p)
	}
	return nil
}

// RemovePeer forgets a node: its streams end as lost and its lanes close. It waits for the lanes' goroutines.
func (r *Receiver) RemovePeer(id transport.NodeID) {
	r.mu.Lock()
	p := r.peers[id]
	delete(r.peers, id)
	delete(r.refused, id)
	r.mu.Unlock()
	if p != nil {
		p.stop()
	}
}

func (r *Receiver) isClosing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing
}

func (r *Receiver) peer(id transport.NodeID) *peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers[id]
}

// Mint opens a stream from a node that is up. It fails with ErrNoLink, ErrBusy,
// ErrDraining or ErrClosed. A peer that is dialled on demand is waited for until ctx ends.
func (r *Receiver) Mint(ctx context.Context, id transport.NodeID, o MintOptions) (*InStream, error) {
	r.mu.Lock()
	p, draining, closing := r.peers[id], r.draining, r.closing
	r.mu.Unlock()
	switch {
	case closing:
		return nil, ErrClosed
	case draining:
		return nil, ErrDraining
	case p == nil:
		return nil, fmt.Errorf("%w: node %s is not known", ErrNoLink, id)
	}
	for {
		if r.cfg.OnDemand {
			if err := p.await(ctx); err != nil {
				return nil, err
			}
		}
		k := p.link.Load()
		if k == nil {
			if r.cfg.OnDemand && ctx.Err() == nil {
				continue // it has just been closed
			}
			return nil, fmt.Errorf("%w: to node %s: %v", ErrNoLink, id, p.state().Err)
		}
		in, err := k.mint(o)
		if r.cfg.OnDemand && errors.Is(err, ErrNoLink) && ctx.Err() == nil {
			continue
		}
		return in, err
	}
}

// Await waits until a lane to the node is up.
func (r *Receiver) Await(ctx context.Context, id transport.NodeID) error {
	p := r.peer(id)
	if p == nil {
		return fmt.Errorf("%w: node %s is not known", ErrNoLink, id)
	}
	return p.await(ctx)
}

// commit takes a window out of the total: min(Window, free/1024), or ErrBusy below 4 KiB.
func (r *Receiver) commit() (int, error) {
	for {
		have := r.committed.Load()
		free := r.cfg.MaxBuffered - have
		window := min(int64(r.cfg.Window), free/windowShare)
		if window < wire.MinWindow {
			return 0, fmt.Errorf("%w: windows of %d bytes are given out of %d", ErrBusy, have, r.cfg.MaxBuffered)
		}
		if r.committed.CompareAndSwap(have, have+window) {
			return int(window), nil
		}
	}
}

// State describes one peer.
func (r *Receiver) State(id transport.NodeID) (PeerState, bool) {
	if p := r.peer(id); p != nil {
		return p.state(), true
	}
	r.mu.Lock()
	p, ok := r.refused[id]
	r.mu.Unlock()
	if !ok {
		return PeerState{}, false
	}
	return PeerState{ID: p.ID, Name: p.Name, Err: r.unusable(p)}, true
}

// refusedPeers are the nodes that AddPeer refused.
func (r *Receiver) refusedPeers() []Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.refused))
}

// suspectFor is how long a node whose record has gone may take to answer.
const suspectFor = time.Second

// Suspect says that there is reason to think that a node has died: its record has left the registry. It is asked, and if
// nothing at all arrives from it for a second its link is lost; if anything does, nothing happens.
func (r *Receiver) Suspect(id transport.NodeID) {
	p := r.peer(id)
	if p == nil {
		return
	}
	k := p.link.Load()
	if k == nil {
		return
	}
	k.suspect.Store(r.now())
	for _, l := range k.upLanes() {
		l.sendPing()
	}
}

// Up says whether a lane to the node is up and takes new streams.
func (r *Receiver) Up(id transport.NodeID) bool {
	p := r.peer(id)
	return p != nil && p.up()
}

// UpSoon says whether the node's link takes streams, or may soon: it is without a lane and not lost, or there is none
// and one is being dialled while nothing speaks against it. That is so of a node that is new, that has other addresses
// than before, or that has just said that it does not know the link any more; a dial that fails speaks against it.
func (r *Receiver) UpSoon(id transport.NodeID) bool {
	p := r.peer(id)
	if p == nil {
		return false
	}
	now, soon, _ := p.outlook()
	return now || soon
}

// AwaitReturn waits until the node takes streams. It fails with ErrNoLink as soon as UpSoon is not so, for a link that
// is without a lane after ResumeTimeout at the latest.
func (r *Receiver) AwaitReturn(ctx context.Context, id transport.NodeID) error {
	p := r.peer(id)
	if p == nil {
		return fmt.Errorf("%w: node %s is not known", ErrNoLink, id)
	}
	return p.awaitReturn(ctx)
}

func (r *Receiver) snapshotPeers() []*peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	peers := make([]*peer, 0, len(r.peers))
	for _, p := range r.peers {
		peers = append(peers, p)
	}
	return peers
}

// Peers describes all peers, ordered by ID.
func (r *Receiver) Peers() []PeerState {
	var all []PeerState
	for _, p := range r.snapshotPeers() {
		all = append(all, p.state())
	}
	for _, p := range r.refusedPeers() {
		all = append(all, PeerState{ID: p.ID, Name: p.Name, Err: r.unusable(p)})
	}
	slices.SortFunc(all, func(a, b PeerState) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return all
}

// tick runs the Receiver's timers.
func (r *Receiver) tick(now, last int64, late time.Duration) {
	const quarter = int64(250 * time.Millisecond)
	times := late > 0 || now/quarter != last/quarter // visits every stream, so not at each tick
	for _, p := range r.snapshotPeers() {
		k := p.link.Load()
		if k == nil {
			continue
		}
		lanes := k.upLanes()
		k.mu.Lock()
		if k.downAt != 0 {
			k.downAt += int64(late)
		}
		busy := k.noteUse(now, late)
		unused := r.cfg.OnDemand && now-k.usedAt >= int64(onDemandIdle)
		expired := k.downAt != 0 && now-k.downAt >= int64(max(r.cfg.ResumeTimeout, time.Millisecond))
		k.mu.Unlock()
		if times {
			k.checkTimes(now, late)
		}
		for _, l := range lanes {
			l.flushDue(now)
			l.watch(now, late, true, busy)
		}
		k.letGo(lanes, now)
		if unused {
			signal(k.idle)
		}
		if k.confirmed(lanes, now, late) {
			k.lose("the worker's record has gone and it does not answer")
		} else if expired {
			k.lose(fmt.Sprintf("no lane to the worker for %v", r.cfg.ResumeTimeout))
		}
	}
}

// Drain mints no more and waits until every slot is free.
func (r *Receiver) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		n := 0
		for _, p := range r.snapshotPeers() {
			if k := p.link.Load(); k != nil {
				k.mu.Lock()
				n += k.live
				k.mu.Unlock()
			}
		}
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("mux: drain: %d streams are left: %w", n, ctx.Err())
		case <-r.done:
			return ErrClosed
		case <-t.C:
		}
	}
}

// Close ends all streams as lost, closes the lanes and joins every goroutine. Idempotent.
func (r *Receiver) Close() error {
	r.mu.Lock()
	first := !r.closing
	r.closing = true
	peers, unclaimed := r.peers, r.unclaimed
	r.peers, r.refused, r.unclaimed = map[transport.NodeID]*peer{}, map[transport.NodeID]Peer{}, map[[16]byte]*OpenStream{}
	r.mu.Unlock()
	for _, s := range unclaimed {
		_ = s.Close()
	}
	if first {
		close(r.done)
		var lanes []*lane
		for _, p := range peers {
			if k := p.link.Load(); k != nil {
				lanes = append(lanes, k.upLanes()...)
			}
		}
		goodbye(lanes, "the frontend closes")
		r.cancel()
		for _, p := range peers {
			p.stop()
		}
	}
	r.wg.Wait()
	return nil
}

// Stats is a snapshot. It visits every open stream once.
func (r *Receiver) Stats() Stats {
	st := r.stats.snapshot()
	st.CommittedBytes = r.committed.Load()
	st.AddressesRefused = make(map[string]uint64)
	refuse := func(p Peer) {
		for _, bad := range r.badAddresses(p) {
			st.AddressesRefused[bad.Reason]++
		}
	}
	for _, p := range r.refusedPeers() {
		refuse(p)
	}
	for _, p := range r.snapshotPeers() {
		for _, d := range p.described() {
			refuse(d)
		}
		k := p.link.Load()
		if k == nil {
			continue
		}
		st.Links++
		st.ClosingSlots += k.closing.Load()
		k.mu.Lock()
		st.OpenStreams += int64(k.live)
		k.each(func(s *InStream) { st.BufferedBytes += int64(len(s.ready) + len(s.assembly)) })
		for _, l := range k.lanes {
			st.Lanes = append(st.Lanes, l.snapshot(p.id, p.name()))
		}
		k.mu.Unlock()
	}
	return st
}
