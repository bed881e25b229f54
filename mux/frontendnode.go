package mux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/dial"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// FrontendNode is the frontend side of a node: it dials the lanes to its peers and mints the terms of streams. Methods
// may be called concurrently.
type FrontendNode struct {
	node
	peers *dial.Peers

	mu        sync.Mutex
	links     map[*dial.Link]*inLink
	unclaimed map[[16]byte]*OpenStream // open terms that may be claimed
	draining  bool
	closing   bool
}

// What is known of peers.
type (
	// Peer says where a node can be reached.
	Peer = dial.Peer
	// PeerPlane is one plane of a peer and its endpoints.
	PeerPlane = dial.PeerPlane
	// PeerState describes a peer.
	PeerState = dial.State
	// NoPlaneError says that a peer and this node share no plane.
	NoPlaneError = dial.NoPlaneError
	// NoAddressError says that nobody can be reached at any address of a node on a plane that both sides have.
	NoAddressError = dial.NoAddressError
	// FileLimitError says that a lane is not dialled, or could not be, because of the process's limit of open files.
	FileLimitError = dial.FileLimitError
	// Fallback counts links that took another plane than the first that both sides list.
	Fallback = dial.Fallback
	// Takeovers count how often lanes got another connection for one reason, and how long they were without one.
	Takeovers = dial.Takeovers
)

// TakeoverBuckets are the upper bounds of the buckets of Takeovers; the last bucket has none.
func TakeoverBuckets() []time.Duration { return dial.TakeoverBuckets[:] }

// NewFrontendNode makes a FrontendNode over the transports, in order of preference.
func NewFrontendNode(cfg Config, transports ...transport.Transport) (*FrontendNode, error) {
	cfg, err := cfg.withDefaults()
	if len(transports) == 0 {
		err = errors.Join(err, errors.New("mux: a FrontendNode needs at least one transport"))
	}
	if err != nil {
		return nil, err
	}
	r := &FrontendNode{links: make(map[*dial.Link]*inLink), unclaimed: make(map[[16]byte]*OpenStream)}
	r.node.init(cfg, cfg.MaxBuffered)
	r.peers = dial.New(dial.Config{
		ID: cfg.ID, Lanes: cfg.Lanes, PlaneLanes: cfg.PlaneLanes, Log: cfg.Log, Resume: cfg.ResumeTimeout,
		Pings:    cfg.pings(),
		OnDemand: cfg.OnDemand, Pipe: r.pipeConfig(true), Now: r.now, Logger: cfg.Logger,
	}, r, transports...)
	r.wg.Go(func() { r.runTicker(r.tick) })
	return r, nil
}

// Begin implements dial.Owner.
func (r *FrontendNode) Begin(k *dial.Link) dial.Streams {
	own, peer := k.Secrets()
	l := &inLink{node: &r.node, recv: r, link: k, key: wire.NewKey(own, peer)}
	l.pages.Store(&[]*slotArray{})
	return l
}

// see puts a link whose lanes have their pipes on the list.
func (r *FrontendNode) see(k *inLink) {
	r.mu.Lock()
	r.links[k.link] = k
	r.mu.Unlock()
}

// forget takes a link that has ended off the list.
func (r *FrontendNode) forget(k *inLink) {
	r.mu.Lock()
	delete(r.links, k.link)
	r.mu.Unlock()
}

func (r *FrontendNode) all() []*inLink {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.links))
}

// AddPeer adds a node, or replaces what is known of its planes, and dials it in the background. It fails with a
// *NoPlaneError when no plane of the node is one of this FrontendNode's, and with a *NoAddressError when nobody can be
// reached at any address of those. Such a node stands among Peers with the error until it is added again or removed,
// unless one of its Alternatives is better.
func (r *FrontendNode) AddPeer(p Peer) error { return r.peers.Add(p) }

// RemovePeer forgets a node: its streams end as lost and its lanes close. It does not wait for that, so that it may be
// called from a sink.
func (r *FrontendNode) RemovePeer(id transport.NodeID) { r.peers.Remove(id) }

// Await waits until a lane to the node is up.
func (r *FrontendNode) Await(ctx context.Context, id transport.NodeID) error {
	return r.peers.Await(ctx, id)
}

// AwaitReturn waits until a link that has no lane with a connection takes streams again. It fails with ErrNoLink as
// soon as that cannot be, after ResumeTimeout at the latest.
func (r *FrontendNode) AwaitReturn(ctx context.Context, id transport.NodeID) error {
	return r.peers.AwaitReturn(ctx, id)
}

// Up says whether a lane to the node is up and takes new streams.
func (r *FrontendNode) Up(id transport.NodeID) bool { return r.peers.Up(id) }

// UpSoon says whether the node's link takes streams, or has no lane with a connection and may still get one: it is
// not lost.
func (r *FrontendNode) UpSoon(id transport.NodeID) bool { return r.peers.UpSoon(id) }

// Suspect says that there is reason to think that a node has died: its record has left the registry. It is asked, and
// if nothing at all arrives from it for a second its connections are dead; dialling decides then. If anything does,
// nothing happens.
func (r *FrontendNode) Suspect(id transport.NodeID) { r.peers.Suspect(id) }

// State describes one peer.
func (r *FrontendNode) State(id transport.NodeID) (PeerState, bool) { return r.peers.State(id) }

// Peers describes all peers, ordered by ID.
func (r *FrontendNode) Peers() []PeerState { return r.peers.States() }

// Mint opens a stream from a node that is up. It fails with ErrNoLink, ErrBusy, ErrDraining or ErrClosed. A peer that
// is dialled on demand is waited for until ctx ends.
func (r *FrontendNode) Mint(ctx context.Context, id transport.NodeID, o MintOptions) (*InStream, error) {
	for {
		if err := r.takes(); err != nil {
			return nil, err
		}
		link, err := r.peers.Link(ctx, id)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		k := r.links[link]
		r.mu.Unlock()
		if k != nil {
			in, err := k.mint(o)
			if !r.cfg.OnDemand || !errors.Is(err, ErrNoLink) || ctx.Err() != nil {
				return in, err
			}
		} else if !r.cfg.OnDemand || ctx.Err() != nil {
			return nil, fmt.Errorf("%w: to node %s: it has just ended", ErrNoLink, id)
		}
	}
}

// takes says why no new streams are opened.
func (r *FrontendNode) takes() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closing:
		return ErrClosed
	case r.draining:
		return ErrDraining
	}
	return nil
}

// commit takes a window out of the total: min(Window, free/1024), or ErrBusy below 4 KiB.
func (r *FrontendNode) commit() (int, error) {
	for {
		have := r.budget.Used()
		window := min(int64(r.cfg.Window), (r.cfg.MaxBuffered-have)/windowShare)
		if window < wire.MinWindow {
			return 0, fmt.Errorf("%w: windows and logs of %d bytes are given out of %d", ErrBusy, have,
				r.cfg.MaxBuffered)
		}
		if r.budget.Take(window) {
			return int(window), nil
		}
	}
}

// tick runs the FrontendNode's timers.
func (r *FrontendNode) tick(now, last int64, late time.Duration) {
	r.peers.Tick(now, last, late)
	const quarter = int64(250 * time.Millisecond)
	if late == 0 && now/quarter == last/quarter { // it visits every stream
		return
	}
	for _, k := range r.all() {
		k.checkTimes(now, late)
	}
}

// openStreams is how many slots are taken.
func (r *FrontendNode) openStreams() (n int) {
	for _, k := range r.all() {
		n += k.Open()
	}
	return n
}

// Drain mints no more and waits until every slot is free.
func (r *FrontendNode) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for n := r.openStreams(); n > 0; n = r.openStreams() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("mux: drain: %d streams are left: %w", n, ctx.Err())
		case <-r.done:
			return ErrClosed
		case <-t.C:
		}
	}
	return nil
}

// Close ends all streams as lost, closes the lanes and joins every goroutine. Idempotent.
func (r *FrontendNode) Close() error {
	r.mu.Lock()
	first := !r.closing
	r.closing = true
	unclaimed := r.unclaimed
	r.unclaimed = map[[16]byte]*OpenStream{}
	r.mu.Unlock()
	for _, s := range unclaimed {
		_ = s.Close()
	}
	if first {
		close(r.done)
	}
	r.peers.Close("the frontend closes")
	r.wg.Wait()
	return nil
}

// Stats is a snapshot. It visits every open stream once.
func (r *FrontendNode) Stats() Stats {
	st := r.snapshot()
	links := r.peers.Stats()
	st.Fallbacks, st.AddressesRefused, st.LaneTakeovers = links.Fallbacks, links.AddressesRefused, links.Takeovers
	st.LaneDownSeconds = links.Down.Seconds()
	for _, k := range r.all() {
		st.Links++
		st.ClosingSlots += k.closing.Load()
		k.mu.Lock()
		st.OpenStreams += int64(k.live)
		k.each(func(s *InStream) { st.BufferedBytes += int64(len(s.ready) + len(s.assembly)) })
		k.mu.Unlock()
		for i, l := range k.link.Lanes() {
			s := LaneStats{Peer: k.link.Peer(), PeerName: k.link.Name(), Lane: i, Up: l.Up(),
				Streams: k.lanes[i].open.Load()}
			if c := l.Connections(); len(c) > 0 {
				s.Plane, s.Local, s.Remote = c[len(c)-1].Plane, c[len(c)-1].Local, c[len(c)-1].Remote
			}
			st.Lanes = append(st.Lanes, laneStats(k.lanes[i].pipe, s))
		}
	}
	return st
}
