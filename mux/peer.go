package mux

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

const (
	backoffFirst = 50 * time.Millisecond
	backoffMax   = 2 * time.Second
	// backoffDenied is the longest pause after a node said that it is somebody else, or does not take this one: nothing but a
	// record or a certificate changes that, and each try costs both a handshake.
	backoffDenied = time.Minute
	// dialTimeout bounds one dial with its handshake; fallbackAfter bounds it where the peer has another plane, and fallbackMute
	// where besides the plane has just been silent for as long as it takes to find its last lane dead.
	dialTimeout   = 5 * time.Second
	fallbackAfter = 3 * time.Second
	fallbackMute  = time.Second
)

// peer keeps one link to a node alive: it dials, and when the link is lost it begins a new one. A peer that is dialled on
// demand has a link only while somebody asks for it or uses it.
type peer struct {
	recv *Receiver
	id   transport.NodeID
	link atomic.Pointer[inLink]

	ctx    context.Context // ends when the peer is removed
	cancel context.CancelFunc
	ended  chan struct{} // closed when run has returned
	wanted chan struct{} // capacity 1: look again now

	slow atomic.Bool // the last dial for a link had no answer for as long as it had its turn

	mu       sync.Mutex
	known    addresses
	renewed  bool               // known has changed since the last attempt began
	dialled  Peer               // by the last attempt
	dialling context.CancelFunc // ends that attempt, nil when none is under way
	leave    context.CancelFunc // ends its wait for its turn, nil when it does not wait
	err      error              // of the last attempt
	soon     bool               // while there is no link: one is being dialled, and nothing speaks against it yet
	changed  chan struct{}      // closed and replaced when the state changes
	waiters  int                // callers of await that have no lane yet
}

func newPeer(r *Receiver, desc Peer) *peer {
	p := &peer{recv: r, id: desc.ID, known: r.addressesOf(desc), soon: !r.cfg.OnDemand, ended: make(chan struct{}),
		wanted: make(chan struct{}, 1), changed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(r.ctx)
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

func (p *peer) up() bool {
	k := p.link.Load()
	return k != nil && k.mints()
}

// await waits until a lane is up, and has a peer that is dialled on demand dialled.
func (p *peer) await(ctx context.Context) error {
	if k := p.link.Load(); k != nil && k.up() {
		return nil
	}
	p.mu.Lock()
	p.waiters++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.waiters--
		p.mu.Unlock()
	}()
	signal(p.wanted)
	for {
		p.mu.Lock()
		changed, last := p.changed, p.err
		p.mu.Unlock()
		if k := p.link.Load(); k != nil && k.up() {
			return nil
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

func (p *peer) state() PeerState {
	p.mu.Lock()
	st := PeerState{ID: p.id, Name: p.known.usable[p.known.at].Name, Err: p.err}
	p.mu.Unlock()
	if k := p.link.Load(); k != nil {
		k.mu.Lock()
		st.Plane, st.Lanes, st.Streams, st.Draining = k.plane, len(k.lanes), k.live, k.draining
		st.Up = !k.gone && !k.leaving && len(k.lanes) > 0
		st.Fallback = k.fellBack
		if k.downAt != 0 {
			st.Down = time.Duration(p.recv.now() - k.downAt)
		}
		k.mu.Unlock()
	}
	if st.Up {
		st.Err = nil
	}
	return st
}

// stop ends the peer and joins it.
func (p *peer) stop() {
	p.cancel()
	<-p.ended
}

// run keeps a link up until the peer is removed.
func (p *peer) run() {
	defer close(p.ended)
	denied := 0 // attempts without a break that were
	for attempt := 0; p.ctx.Err() == nil && !p.recv.isClosing(); attempt++ {
		if p.recv.cfg.OnDemand && !p.demanded() {
			return
		}
		k, first, failure := p.establish(attempt)
		if failure != nil {
			n, renewed := p.failed(failure.silent)
			if renewed {
				attempt, denied = -1, 0
				continue // nothing is known of the new addresses yet
			}
			if p.note(failure.err) && !p.recv.files.short(p.recv, failure.err) {
				p.recv.log.Warn("a worker cannot be reached; it is dialled on", "peer", p.id, "name", p.name(), "error", oneLine(failure.err))
			}
			denied++
			if !failure.denied {
				denied = 0
			}
			p.pause(max(backoff(attempt, backoffMax), backoff(denied/n, backoffDenied)))
			continue
		}
		p.keep(k, first)
		p.mu.Lock()
		p.soon = k.forgotten.Load() // before anybody can see that there is no link
		p.mu.Unlock()
		p.link.CompareAndSwap(k, nil)
		attempt, denied = -1, 0
		p.slow.Store(false)
		why := k.lostReason()
		p.recv.log.Info("link lost", "peer", p.id, "link", k.id, "reason", why)
		if why == idleReason {
			p.note(nil)
			continue
		}
		p.note(fmt.Errorf("the link was lost: %s", why))
		p.pause(backoff(0, backoffMax))
	}
}

// demanded waits until somebody waits for a lane. False: the peer was removed.
func (p *peer) demanded() bool {
	for {
		p.mu.Lock()
		n := p.waiters
		p.mu.Unlock()
		if n > 0 {
			return true
		}
		select {
		case <-p.wanted:
		case <-p.ctx.Done():
			return false
		}
	}
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

// backoff is how long to wait after some attempts: longer each time, with jitter.
func backoff(attempt int, most time.Duration) time.Duration {
	d := min(backoffFirst<<min(attempt, 12), most)
	return d/2 + rand.N(d/2+1)
}

// failure is why an attempt to begin a link came to nothing.
type failure struct {
	err    error
	silent bool // some plane did not answer in time
	denied bool // every plane was answered by somebody who is not the node, or does not take this one
}

// establish begins a new link: its first lane, alone, on the first plane that both list and that connects. A later attempt begins at
// another endpoint.
func (p *peer) establish(attempt int) (*inLink, *lane, *failure) {
	ctx, abandon := context.WithCancel(p.ctx)
	defer abandon()
	desc := p.begin(abandon)
	routes := p.recv.shared(desc)
	if len(routes) == 0 {
		return nil, nil, &failure{err: p.recv.unusable(desc)}
	}
	turn := p.recv.gates.begin
	if p.slow.Load() {
		turn = p.recv.gates.slow
	}
	f := &failure{denied: true}
	var errs []error
	for i, r := range routes {
		k := &inLink{node: &p.recv.node, recv: p.recv, peer: p, id: p.recv.linkNumber.Add(1), plane: r.transport.Plane(), gate: turn,
			ownSecret: newSecret(), idle: make(chan struct{}, 1), usedAt: p.recv.now()}
		k.ctx, k.cancel = context.WithCancel(p.ctx)
		stop := context.AfterFunc(ctx, k.cancel)
		k.pages.Store(&[]*slotArray{})
		l, err := k.dial(r, 0, attempt, patience{timeoutOf(i, len(routes)), hedgeAfter})
		stop()
		if err == nil && !p.connected() {
			k.discard(l)
			err = errRenewed
		}
		if err == nil {
			if i > 0 {
				k.fellBackFrom(routes[0].transport.Plane(), k.plane, errs[0])
			}
			k.mu.Lock()
			k.add(l) // before anybody can lose the link: else nobody would close the lane
			k.mu.Unlock()
			p.link.Store(k)
			p.note(nil)
			return k, l, nil
		}
		k.cancel()
		errs = append(errs, err)
		f.silent = f.silent || k.silent
		f.denied = f.denied && transport.Denied(err)
		if ctx.Err() != nil || errors.Is(err, errRenewed) {
			break
		}
	}
	f.err = errors.Join(errs...)
	return nil, nil, f
}

// timeoutOf is how long plane i of n may take to connect.
func timeoutOf(i, n int) time.Duration {
	if i < n-1 {
		return fallbackAfter
	}
	return dialTimeout
}

// outlook says whether the node takes new streams, and if not, whether it may soon. lost is closed when the link on
// which it would is lost.
func (p *peer) outlook() (now, soon bool, lost <-chan struct{}) {
	k := p.link.Load()
	if k == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		return false, p.soon, nil
	}
	if now, soon = k.outlook(); now || soon {
		return now, soon, k.ctx.Done()
	}
	return false, k.forgotten.Load(), nil
}

// awaitReturn waits until the node takes new streams: its link has a lane again, or there is a new link. It fails with
// ErrNoLink as soon as neither is to be expected.
func (p *peer) awaitReturn(ctx context.Context) error {
	for {
		p.mu.Lock()
		changed, last := p.changed, p.err
		p.mu.Unlock()
		now, soon, lost := p.outlook()
		switch {
		case now:
			return nil
		case !soon:
			return fmt.Errorf("%w: to node %s: %v", ErrNoLink, p.id, last)
		}
		select {
		case <-changed:
		case <-lost:
		case <-ctx.Done():
			return fmt.Errorf("%w: to node %s: %w", ErrNoLink, p.id, errors.Join(ctx.Err(), last))
		case <-p.ctx.Done():
			return ErrClosed
		}
	}
}

func (k *inLink) isLost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gone
}

func (k *inLink) lostReason() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reason
}
