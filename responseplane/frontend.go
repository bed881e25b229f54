package responseplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/mux"
)

// Frontend consumes responses of many workers. Methods may be called concurrently.
type Frontend struct {
	cfg  FrontendConfig
	recv *mux.FrontendNode
	turn atomic.Uint64 // of the round-robin router

	retries  retryCounts
	requests *requests

	mu      sync.RWMutex
	workers map[string]*workerEntry
	models  map[string]*pool // none is empty
	nodes   map[NodeID]*nodeEntry
	// vanished are the workers whose record has gone and that are still in the tables.
	vanished map[*workerEntry]struct{}
}

// NewFrontend makes a Frontend. It dials nobody before it knows somebody.
func NewFrontend(cfg FrontendConfig) (*Frontend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	recv, err := mux.NewFrontendNode(cfg.mux(), cfg.Transports...)
	if err != nil {
		return nil, err
	}
	return &Frontend{cfg: cfg, recv: recv, requests: newRequests(time.Now, cfg.KeepEnded),
		workers: make(map[string]*workerEntry),
		models:  make(map[string]*pool),
		nodes:   make(map[NodeID]*nodeEntry), vanished: make(map[*workerEntry]struct{})}, nil
}

// AddPeer makes a worker process known by its descriptor, dials it in the background, and returns what Mint and
// AwaitPeer call it. It fails when the descriptor does not hold, shares no plane with this Frontend, or has no address
// that this host can dial; where the descriptor names a node, that is returned with the error too. Adding it again
// replaces its addresses.
func (f *Frontend) AddPeer(d Descriptor) (NodeID, error) {
	return f.addNode(d, "", func(n *nodeEntry, a *nodeAddress) {
		for _, former := range n.addresses {
			former.manual = false
		}
		n.manual, a.manual = true, true
	})
}

// RemovePeer forgets a worker process: its open responses end as lost. It waits for the lanes' goroutines.
func (f *Frontend) RemovePeer(id NodeID) {
	f.mu.Lock()
	delete(f.nodes, id)
	f.mu.Unlock()
	f.recv.RemovePeer(id)
}

// AwaitPeer waits until a lane to the process is up.
func (f *Frontend) AwaitPeer(ctx context.Context, id NodeID) error { return f.recv.Await(ctx, id) }

// PeerStatus describes a worker process.
type PeerStatus = mux.PeerState

// Peers describes all worker processes that are known.
func (f *Frontend) Peers() []PeerStatus { return f.recv.Peers() }

// Follow keeps workers and peers in step with a registry until ctx ends or the registry closes its watch. It blocks.
// The open responses of a worker that leaves the registry go on. New ones go there only when no other worker is left,
// for at most FrontendConfig.KeepVanished and while its link is up: a registry that lost its records for a moment is no
// reason to turn requests away.
func (f *Frontend) Follow(ctx context.Context, reg discovery.Registry) error {
	events, err := reg.Watch(ctx)
	if err != nil {
		return fmt.Errorf("responseplane: watch the registry: %w", err)
	}
	reap := time.NewTicker(reapEvery)
	defer reap.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return ctx.Err()
			}
			if e.Kind == discovery.Closed {
				return errors.Join(ctx.Err(), e.Err)
			}
			f.apply(e)
		case <-reap.C:
			f.sweep(time.Now())
			f.requests.sweep()
			f.reap(time.Now())
		}
	}
}

// apply takes one event of a registry.
func (f *Frontend) apply(e discovery.Event) {
	switch e.Kind {
	case discovery.Put:
		if err := f.putWorker(e.Worker); err != nil {
			f.cfg.Logger.Error("a worker's record cannot be used", "worker", e.Worker.ID, "error", err)
		}
	case discovery.Delete:
		f.dropWorker(e.Worker.ID)
	case discovery.Invalid:
		f.cfg.Logger.Error("a record in the registry does not hold; the last good one stays", "worker", e.Worker.ID,
			"error", e.Err)
	}
}

// MintOptions are the time bounds of a response that is minted for an own request path; zero means none.
type MintOptions = mux.MintOptions

// Mint opens a response from a worker process for a request path of your own: put Response.Terms into the request, and
// the worker's Attach finds its way back. Whatever goes wrong with the request, Close the response. ctx bounds the wait
// for a link, and its deadline is the response's, as with Open, where o.TimeLeft is not sooner. It fails with an *Error
// (busy, draining, no link), ErrClosed or ctx's error.
func (f *Frontend) Mint(ctx context.Context, node NodeID, o MintOptions) (*Response, error) {
	if d, ok := ctx.Deadline(); ok {
		if left := max(time.Until(d), time.Microsecond); o.TimeLeft <= 0 || left < o.TimeLeft {
			o.TimeLeft = left
		}
	}
	in, err := f.recv.Mint(ctx, node, o)
	if err != nil {
		return nil, asMint(err, "", node)
	}
	return &Response{in: in, f: f, node: node, name: f.nodeName(node)}, nil
}

// Pending is a response of open terms that no worker has claimed yet. Always Close it, or the Response that Wait
// returns.
type Pending struct {
	f    *Frontend
	open *mux.OpenStream
}

// MintOpen opens a response for a router that picks the worker after the request has left: put Pending.Terms into the
// request; whichever worker gets it claims the response (Worker.Claim) while its engine prefills. The worker must have
// this Frontend's link up, so add every worker process that may be picked. It fails with an *Error (busy, draining) or
// ErrClosed.
func (f *Frontend) MintOpen(o MintOptions) (*Pending, error) {
	open, err := f.recv.MintOpen(o)
	if err != nil {
		return nil, asMint(err, "", NodeID{})
	}
	return &Pending{f: f, open: open}, nil
}

// Terms are what the request must carry: opaque, about 50 bytes. They must not be changed.
func (p *Pending) Terms() []byte { return p.open.Terms() }

// Wait waits until a worker has claimed the response. A ctx that ends changes nothing: Wait again, or Close.
func (p *Pending) Wait(ctx context.Context) (*Response, error) {
	in, err := p.open.Wait(ctx)
	if err != nil {
		return nil, err
	}
	node := in.Node()
	return &Response{in: in, f: p.f, open: p.open, node: node, name: p.f.nodeName(node)}, nil
}

// Close gives the response up: a worker that asks for it later is told so, one that has it is told to stop. Idempotent.
func (p *Pending) Close() error { return p.open.Close() }

func (f *Frontend) nodeName(id NodeID) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if n := f.nodes[id]; n != nil {
		return n.name
	}
	return ""
}

// Models lists the models of the workers that are known, sorted.
func (f *Frontend) Models() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	models := make([]string, 0, len(f.models))
	for m := range f.models {
		models = append(models, m)
	}
	slices.Sort(models)
	return models
}

// WorkerStatus describes one worker.
type WorkerStatus struct {
	ID        string   `json:"id"`
	Models    []string `json:"models"`
	Node      string   `json:"node"`
	Name      string   `json:"name"` // of its process
	Reachable bool     `json:"reachable"`
	Plane     string   `json:"plane,omitempty"`    // of the link to its process
	Fallback  string   `json:"fallback,omitempty"` // why that is not the first plane that both have; it is tried again each minute
	Avoided   bool     `json:"avoided"`
	Vanished  bool     `json:"vanished,omitempty"` // its record has gone; it is used when no other worker is left
	Open      int64    `json:"open"`               // responses from this Frontend
	Err       string   `json:"error,omitempty"`
}

// Workers describes all workers that are known, ordered by id, with those whose record has gone and that may still be
// used.
func (f *Frontend) Workers() []WorkerStatus {
	peers := make(map[NodeID]mux.PeerState)
	for _, p := range f.recv.Peers() {
		peers[p.ID] = p
	}
	now := time.Now()
	f.mu.RLock()
	all := make([]WorkerStatus, 0, len(f.workers))
	for _, w := range f.workers {
		if !f.usable(w, now) {
			continue // the next sweep takes it out
		}
		st := WorkerStatus{ID: w.rec.ID, Models: w.rec.Models, Node: w.rec.Node.ID, Name: w.rec.Node.Name,
			Avoided:  w.avoided(now),
			Vanished: w.vanished.Load() != 0, Open: w.open.Load()}
		p, ok := peers[w.node]
		st.Reachable = ok && p.Up && !p.Draining
		st.Plane = p.Plane
		if p.Fallback != nil {
			st.Fallback = p.Fallback.Error()
		}
		if p.Err != nil {
			st.Err = p.Err.Error()
		} else if !ok {
			st.Err = "its process was removed"
		}
		all = append(all, st)
	}
	f.mu.RUnlock()
	slices.SortFunc(all, func(a, b WorkerStatus) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all
}

// Counts is how many workers are known and how many of them can be reached. Those whose record has gone are not
// counted.
func (f *Frontend) Counts() (known, reachable int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	up := make(map[NodeID]bool, len(f.nodes))
	for id := range f.nodes {
		up[id] = f.recv.Up(id)
	}
	for _, w := range f.workers {
		if w.vanished.Load() != 0 {
			continue
		}
		known++
		if up[w.node] {
			reachable++
		}
	}
	return known, reachable
}

// Ready is nil when at least one worker of the registry or one process of AddPeer that does not drain can be reached,
// else it says what is missing.
func (f *Frontend) Ready() error {
	known, reachable := f.Counts()
	switch {
	case reachable > 0 || f.anyVanished() || f.anyPeerUp():
		return nil
	case known == 0:
		return errors.New("responseplane: no worker is known")
	}
	for _, w := range f.Workers() {
		if w.Err != "" {
			return fmt.Errorf("responseplane: none of %d workers can be reached; worker %s: %s", known, w.ID, w.Err)
		}
	}
	return fmt.Errorf("responseplane: none of %d workers can be reached", known)
}

// anyPeerUp says whether a process of AddPeer has a link.
func (f *Frontend) anyPeerUp() bool {
	up := make(map[NodeID]bool)
	for _, p := range f.recv.Peers() {
		up[p.ID] = p.Up && !p.Draining
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for id, n := range f.nodes {
		if n.manual && up[id] {
			return true
		}
	}
	return false
}

// anyVanished says whether there is a worker that can be used although its record has gone.
func (f *Frontend) anyVanished() bool {
	now := time.Now()
	f.mu.RLock()
	defer f.mu.RUnlock()
	for w := range f.vanished {
		if f.usable(w, now) {
			return true
		}
	}
	return false
}

// Stats is a snapshot of the plane's counters.
func (f *Frontend) Stats() Stats { return f.recv.Stats() }

// Drain opens no more responses and waits until every one has ended.
func (f *Frontend) Drain(ctx context.Context) error { return f.recv.Drain(ctx) }

// Close ends what is open as lost, closes the lanes and joins every goroutine. Idempotent.
func (f *Frontend) Close() error { return f.recv.Close() }
