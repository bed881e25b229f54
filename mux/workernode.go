package mux

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/accept"
	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// WorkerNode is the worker side of a node: it accepts the lanes of many frontends and opens the streams that their
// terms name. Methods may be called concurrently.
type WorkerNode struct {
	node
	links *accept.Links

	draining, closing atomic.Bool

	mu      sync.Mutex
	streams map[*accept.Link]*outLink
}

// NewWorkerNode makes a WorkerNode. It does nothing until Serve.
func NewWorkerNode(cfg Config) (*WorkerNode, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &WorkerNode{streams: make(map[*accept.Link]*outLink)}
	s.node.init(cfg, cfg.MaxReplay)
	s.links = accept.New(accept.Config{
		ID: cfg.ID, MaxStreams: cfg.MaxStreams, MaxLinks: cfg.MaxLinks, Log: cfg.Log, Resume: cfg.ResumeTimeout,
		Pings: cfg.pings(), Pipe: s.pipeConfig(false), Now: s.now, Logger: cfg.Logger,
	}, s)
	s.wg.Go(func() { s.runTicker(s.tick) })
	return s, nil
}

// Serve accepts lanes from a listener until the WorkerNode or the listener is closed. It returns at once; Close closes
// the listener.
func (s *WorkerNode) Serve(l transport.Listener) error { return s.links.Serve(l) }

// Begin implements accept.Owner.
func (s *WorkerNode) Begin(k *accept.Link) accept.Streams {
	own, peer := k.Secrets()
	return &outLink{node: &s.node, worker: s, link: k, key: wire.NewKey(peer, own),
		claims: make(map[[16]byte]chan grant)}
}

// see puts a link whose lanes have their pipes on the list.
func (s *WorkerNode) see(k *outLink) {
	s.mu.Lock()
	s.streams[k.link] = k
	s.mu.Unlock()
}

// forget takes a link that has ended off the list.
func (s *WorkerNode) forget(k *outLink) {
	s.mu.Lock()
	delete(s.streams, k.link)
	s.mu.Unlock()
}

// linkTo is the streams of a frontend's link, nil if there is no such link.
func (s *WorkerNode) linkTo(k *accept.Link) *outLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[k]
}

// Attach opens the stream that terms name. It fails with ErrStaleTerms, ErrTermsVersion, ErrBusy, ErrDraining,
// ErrNoLink or ErrClosed.
func (s *WorkerNode) Attach(terms []byte) (*OutStream, error) {
	stream, err := s.attach(terms)
	if err != nil {
		s.stats.refused.Add(1)
	}
	return stream, err
}

func (s *WorkerNode) attach(terms []byte) (*OutStream, error) {
	t, err := wire.ParseTerms(terms)
	if err != nil {
		return nil, err
	}
	if err := s.takes(); err != nil {
		return nil, err
	}
	if t.Worker != [16]byte(s.cfg.ID) {
		return nil, fmt.Errorf("%w: they are for node %s, this is %s", ErrStaleTerms, transport.NodeID(t.Worker),
			s.cfg.ID)
	}
	k := s.linkTo(s.links.Link(transport.NodeID(t.Frontend), t.Link))
	if k == nil {
		return nil, fmt.Errorf("%w: link %d of node %s", ErrNoLink, t.Link, transport.NodeID(t.Frontend))
	}
	return k.attach(&t, terms)
}

// takes says why no new streams are opened.
func (s *WorkerNode) takes() error {
	switch {
	case s.closing.Load():
		return ErrClosed
	case s.draining.Load():
		return ErrDraining
	}
	return nil
}

// Flush has what every lane holds written: the end of an engine's pass. The records of all engines of a process that
// go to one frontend share its lanes.
func (s *WorkerNode) Flush() {
	for _, p := range s.links.Pipes() {
		p.Flush(pipe.ByFlush)
	}
}

func (s *WorkerNode) all() []*outLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.streams))
}

// tick runs the WorkerNode's timers.
func (s *WorkerNode) tick(now, last int64, late time.Duration) {
	s.links.Tick(now, last, late)
	// Once a second is enough for what counts in seconds, and it visits every stream.
	if now/int64(time.Second) == last/int64(time.Second) {
		return
	}
	wall := time.Now()
	for _, k := range s.all() {
		k.expire(wall)
	}
}

// Drain refuses new terms, tells the frontends with GOAWAY and waits until every stream has ended and its END is
// acknowledged. That happens on receipt, so slow clients do not hold it. A frontend that is dead costs the time for
// which its lanes are held, since it may only have lost its connections; so does a single lane that stays away. ctx
// is the bound.
func (s *WorkerNode) Drain(ctx context.Context) error {
	s.draining.Store(true)
	s.links.Drain("the worker drains")
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		left := s.unsettled()
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("mux: drain: %d streams are open or not acknowledged: %w", left, ctx.Err())
		case <-s.done:
			return ErrClosed
		case <-t.C:
		}
	}
}

// unsettled is what Drain waits for, on all links.
func (s *WorkerNode) unsettled() (n int) {
	for _, k := range s.all() {
		n += k.unsettled()
	}
	return n
}

// Close ends all streams as lost, closes lanes and listeners and joins every goroutine. It is idempotent.
func (s *WorkerNode) Close() error {
	if !s.closing.Swap(true) {
		close(s.done)
	}
	err := s.links.Close("the worker closes")
	s.wg.Wait()
	return err
}

// Stats is a snapshot. It visits every link once.
func (s *WorkerNode) Stats() Stats {
	st := s.snapshot()
	links := s.links.Stats()
	st.LaneTakeovers = map[string]Takeovers{"planned": {Count: links.Planned}, "resumed": {Count: links.Resumed}}
	st.LaneDownSeconds = time.Duration(links.DownNanos).Seconds()
	for _, k := range s.all() {
		st.Links++
		st.OpenStreams += int64(k.Open())
		for i, l := range k.link.Lanes() {
			s := LaneStats{Peer: k.link.Peer(), Lane: i, Up: l.Up()}
			if c := l.Connections(); len(c) > 0 {
				s.Plane, s.Local, s.Remote = c[len(c)-1].Plane, c[len(c)-1].Local.String(), c[len(c)-1].Remote.String()
			}
			st.Lanes = append(st.Lanes, laneStats(k.lanes[i].pipe, s))
		}
	}
	return st
}
