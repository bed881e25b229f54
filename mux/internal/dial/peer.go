package dial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// peer keeps one link to a node alive: when there is none it begins a new one. A peer that is dialled on demand has a
// link only while somebody asks for it or uses it.
type peer struct {
	recv  *Peers
	id    transport.NodeID
	link  atomic.Pointer[Link]
	paces [wire.MaxLanes]pace

	ctx    context.Context // ends when the peer is removed
	cancel context.CancelFunc
	links  sync.WaitGroup // that have ended and whose lanes are joined
	ended  chan struct{}  // closed when run has returned
	wanted chan struct{}  // capacity 1: look again now

	begun  map[string]*Link // by plane: links whose HELLO has no answer yet; run's
	asking atomic.Int64     // callers of await
	slow   atomic.Bool      // the last dial for a link had no answer for as long as it had its turn

	mu       sync.Mutex
	known    addresses
	renewed  bool               // known has changed since the last attempt began
	dialled  Peer               // by the last attempt
	dialling context.CancelFunc // ends that attempt, nil when none is under way
	leave    context.CancelFunc // ends its wait for its turn, nil when it does not wait
	err      error              // of the last attempt
	soon     bool               // while there is no link: one is being dialled, and nothing speaks against it yet
	changed  chan struct{}      // closed and replaced when the state changes
}

func newPeer(r *Peers, desc Peer) *peer {
	p := &peer{recv: r, id: desc.ID, known: r.addressesOf(desc), soon: !r.cfg.OnDemand, ended: make(chan struct{}),
		wanted: make(chan struct{}, 1), changed: make(chan struct{}), begun: make(map[string]*Link)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *peer) name() string { return p.description().Name }

// routes are the planes that both sides have, in this node's order, as the peer is known now.
func (p *peer) routes() []route { return p.recv.shared(p.description()) }

// note tells those who wait that something has changed. It says whether the peer could be reached until now, so that an
// episode is logged once.
func (p *peer) note(err error) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news = p.err == nil
	p.err = err
	close(p.changed)
	p.changed = make(chan struct{})
	return news
}

// oneLine keeps joined errors on one line of a log.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// up says whether a lane of a link is up.
func (p *peer) up() bool {
	k := p.link.Load()
	return k != nil && k.end() == nil && k.up() > 0
}

// outlook says whether the node takes new streams, and if not, whether it may soon: its link is without a lane, or
// there is none and one is being dialled while nothing speaks against it.
func (p *peer) outlook() (now, soon bool) {
	k := p.link.Load()
	switch {
	case k == nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		return false, p.soon
	case k.end() != nil:
		return false, k.end().forgotten
	case k.draining.Load():
		return false, false
	}
	up := k.up() > 0
	return up, !up
}

// until waits until ready says so. It fails with ErrNoLink when there is no hope.
func (p *peer) until(ctx context.Context, ready func() (now, hope bool)) error {
	for {
		p.mu.Lock()
		changed, last := p.changed, p.err
		p.mu.Unlock()
		now, hope := ready()
		switch {
		case now:
			return nil
		case !hope:
			return fmt.Errorf("%w: to node %s: %v", ErrNoLink, p.id, last)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: to node %s: %w", ErrNoLink, p.id, errors.Join(ctx.Err(), last))
		case <-p.ctx.Done():
			return ErrClosed
		}
	}
}

// await waits until a lane is up, and has a peer that is dialled on demand dialled.
func (p *peer) await(ctx context.Context) error {
	if p.up() {
		return nil
	}
	p.asking.Add(1)
	defer p.asking.Add(-1)
	signal(p.wanted)
	return p.until(ctx, func() (bool, bool) { return p.up(), true })
}

// run keeps a link up until the peer is removed.
func (p *peer) run() {
	defer close(p.ended)
	defer p.links.Wait()
	log, pace := p.recv.log, &p.paces[0]
	denied := 0 // attempts without a break that were
	for p.ctx.Err() == nil {
		if p.recv.cfg.OnDemand && !p.demanded() {
			return
		}
		k, failure := p.establish()
		if p.ctx.Err() != nil && k == nil {
			return
		}
		if failure != nil {
			n, renewed := p.failed(failure.silent)
			if renewed {
				denied = 0
				pace.count(true)
				continue // nothing is known of the new addresses yet
			}
			if p.note(failure.err) && !p.recv.files.short(p.recv, failure.err) {
				log.Warn("a worker cannot be reached; it is dialled on", "peer", p.id, "name", p.name(),
					"error", oneLine(failure.err))
			}
			if denied++; !failure.denied {
				denied = 0
			}
			pace.count(false)
			p.pause(max(pace.delay(), backoff(denied/n, backoffDenied)))
			continue
		}
		denied = 0
		p.slow.Store(false)
		k.serve()
		p.mu.Lock()
		p.soon = k.end().forgotten // before anybody can see that there is no link
		p.mu.Unlock()
		p.link.CompareAndSwap(k, nil)
		why := k.end().why
		log.Info("link lost", "peer", p.id, "link", k.number, "reason", why)
		if why == idleReason {
			p.note(nil)
			continue
		}
		p.note(fmt.Errorf("the link was lost: %s", why))
		p.pause(max(pace.delay(), backoff(0, backoffMax)))
	}
}

// demanded waits until somebody waits for a lane. False: the peer was removed.
func (p *peer) demanded() bool {
	for p.asking.Load() == 0 {
		select {
		case <-p.wanted:
		case <-p.ctx.Done():
			return false
		}
	}
	return true
}

// pause waits before the next attempt, or until somebody asks.
func (p *peer) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.wanted:
	case <-p.ctx.Done():
	}
}

// failure is why an attempt to begin a link came to nothing.
type failure struct {
	err    error
	silent bool // some plane did not answer in time
	denied bool // every plane was answered by somebody who is not the node, or does not take this one
}

// establish begins a new link: its first connection, alone, on the first plane that both list and that connects.
func (p *peer) establish() (*Link, *failure) {
	ctx, abandon := context.WithCancel(p.ctx)
	defer abandon()
	desc := p.attempt(abandon)
	routes := p.recv.shared(desc)
	if len(routes) == 0 {
		return nil, &failure{err: p.recv.unusable(desc)}
	}
	f := &failure{denied: true}
	var errs []error
	for i, r := range routes {
		k := p.begun[r.plane()]
		if k == nil {
			k = p.newLink(r.plane())
			p.begun[r.plane()] = k
		}
		d := dialling{peer: p, route: r, may: patienceFor(i, len(routes)), begins: true}
		err := d.dial(ctx, k.first)
		if err == nil {
			clear(p.begun)
			if i > 0 {
				k.fellBackFrom(routes[0].plane(), r.plane(), errs[0])
			}
			return k, nil
		}
		if answered(err) {
			delete(p.begun, r.plane())
		}
		errs = append(errs, err)
		f.silent = f.silent || d.slow
		f.denied = f.denied && transport.Denied(err)
		if ctx.Err() != nil || errors.Is(err, errRenewed) {
			break
		}
	}
	f.err = errors.Join(errs...)
	return nil, f
}

// answered says whether a HELLO had an answer, if none that begins a link.
func answered(err error) bool {
	var away *pipe.AwayError
	var bad *wire.Error
	return errors.As(err, &away) || errors.As(err, &bad)
}
