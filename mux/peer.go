package mux

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

const (
	backoffFirst = 50 * time.Millisecond
	backoffMax   = 2 * time.Second
	// dialTimeout bounds one dial with its handshake; fallbackAfter bounds it where the peer has another plane.
	dialTimeout   = 5 * time.Second
	fallbackAfter = 3 * time.Second
)

// peer keeps one link to a node alive: it dials, and when the link is lost it begins a new one.
type peer struct {
	recv *Receiver
	id   transport.NodeID
	link atomic.Pointer[inLink]

	ctx    context.Context // ends when the peer is removed
	cancel context.CancelFunc
	ended  chan struct{} // closed when run has returned
	wanted chan struct{} // capacity 1: dial now

	mu      sync.Mutex
	desc    Peer
	err     error         // of the last attempt
	changed chan struct{} // closed and replaced when the state changes
	asked   bool          // demand was called
}

func newPeer(r *Receiver, desc Peer) *peer {
	p := &peer{recv: r, id: desc.ID, desc: desc, ended: make(chan struct{}), wanted: make(chan struct{}, 1), changed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(r.ctx)
	return p
}

func (p *peer) name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.desc.Name
}

func (p *peer) update(desc Peer) {
	p.mu.Lock()
	p.desc = desc
	p.mu.Unlock()
	signal(p.wanted)
}

// demand has a peer that is dialled on demand dialled.
func (p *peer) demand() {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	signal(p.wanted)
}

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
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.gone && !k.draining && len(k.lanes) > 0
}

// await waits until a lane is up.
func (p *peer) await(ctx context.Context) error {
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
	st := PeerState{ID: p.id, Name: p.desc.Name, Err: p.err}
	p.mu.Unlock()
	if k := p.link.Load(); k != nil {
		k.mu.Lock()
		st.Plane, st.Lanes, st.Streams, st.Draining = k.plane, len(k.lanes), k.live, k.draining
		st.Up = !k.gone && len(k.lanes) > 0
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
	if k := p.link.Load(); k != nil {
		k.lose("the peer was removed")
	}
	<-p.ended
}

// run keeps a link up until the peer is removed.
func (p *peer) run() {
	defer close(p.ended)
	if p.recv.cfg.OnDemand {
		select {
		case <-p.wanted:
		case <-p.ctx.Done():
			return
		}
	}
	for attempt := 0; p.ctx.Err() == nil; attempt++ {
		k, first, err := p.establish()
		if err != nil {
			if p.note(err) {
				p.recv.log.Warn("a worker cannot be reached; it is dialled on", "peer", p.id, "name", p.name(), "error", oneLine(err))
			}
			p.pause(attempt)
			continue
		}
		p.keep(k, first)
		p.link.CompareAndSwap(k, nil)
		why := k.lostReason()
		p.note(fmt.Errorf("the link was lost: %s", why))
		p.recv.log.Info("link lost", "peer", p.id, "link", k.id, "reason", why)
		attempt = 0
		p.pause(0)
	}
}

// pause waits before the next attempt: longer each time, with jitter, or until somebody asks.
func (p *peer) pause(attempt int) {
	t := time.NewTimer(backoff(attempt))
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.wanted:
	case <-p.ctx.Done():
	}
}

func backoff(attempt int) time.Duration {
	d := min(backoffFirst<<min(attempt, 10), backoffMax)
	return d/2 + rand.N(d/2+1)
}

// establish begins a new link: its first lane, alone, on the first plane that both list and that connects.
func (p *peer) establish() (*inLink, *lane, error) {
	p.mu.Lock()
	desc := p.desc
	p.mu.Unlock()
	routes := p.recv.shared(desc)
	if len(routes) == 0 {
		return nil, nil, &NoPlaneError{Peer: p.id, Theirs: planeNames(desc), Ours: p.recv.planeNames()}
	}
	var errs []error
	for i, r := range routes {
		timeout := dialTimeout
		if i < len(routes)-1 {
			timeout = fallbackAfter
		}
		k := &inLink{node: &p.recv.node, recv: p.recv, peer: p, id: p.recv.linkNumber.Add(1), plane: r.transport.Plane(),
			ownSecret: newSecret()}
		k.ctx, k.cancel = context.WithCancel(p.ctx)
		k.pages.Store(&[]*slotArray{})
		l, err := k.dial(r, 0, timeout)
		if err == nil {
			if i > 0 {
				from := routes[0].transport.Plane()
				p.recv.stats.fellBack(from, k.plane, fallbackReason(errs[0]))
				p.recv.log.Warn("a link fell back to another plane", "peer", p.id, "from", from, "to", k.plane, "error", oneLine(errs[0]))
			}
			k.laneUp(l) // before anybody can lose the link: else nobody would close the lane
			p.link.Store(k)
			p.note(nil)
			return k, l, nil
		}
		k.cancel()
		errs = append(errs, err)
		if p.ctx.Err() != nil {
			break
		}
	}
	return nil, nil, errors.Join(errs...)
}

// fallbackReason puts the failure of a plane into one of a few words.
func fallbackReason(err error) string {
	var identity *transport.IdentityError
	switch {
	case errors.As(err, &identity):
		return "identity"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "other"
}

// keep runs the lanes of a link until it is lost, and joins them.
func (p *peer) keep(k *inLink, first *lane) {
	n := p.recv.cfg.lanesFor(k.plane)
	stop := context.AfterFunc(p.ctx, func() { k.lose("the peer was removed") })
	defer stop()
	var wg sync.WaitGroup
	for i := range n {
		var up *lane
		if i == 0 {
			up = first
		}
		wg.Go(func() { k.runLane(i, up) })
	}
	wg.Wait()
	k.lose("the peer was removed") // the lanes may have seen that before the AfterFunc, and then it does not run any more
}

// runLane is the life of one lane position: read while it is up, then dial again, until the link is lost.
func (k *inLink) runLane(index int, l *lane) {
	for attempt := 0; ; attempt++ {
		if l != nil {
			attempt = 0
			k.read(l)
			l = nil
		}
		if k.recv.isClosing() {
			k.lose("the frontend closes")
		}
		if k.isLost() {
			return
		}
		p := k.peer
		p.mu.Lock()
		desc := p.desc
		p.mu.Unlock()
		r, ok := k.route(desc)
		if !ok {
			k.lose("the peer has left plane " + k.plane)
			return
		}
		var err error
		if l, err = k.dial(r, index, dialTimeout); err != nil {
			if why := k.evidence(err); why != "" {
				k.lose(why)
				return
			}
			p.note(err)
			if !k.wait(backoff(attempt)) {
				return
			}
			continue
		}
		if !k.laneUp(l) {
			l.die(deathClosed, errLaneClosed)
			l.wg.Wait()
			return
		}
		p.note(nil)
	}
}

func (k *inLink) route(desc Peer) (route, bool) {
	for _, r := range k.recv.shared(desc) {
		if r.transport.Plane() == k.plane {
			return r, true
		}
	}
	return route{}, false
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

// wait pauses and says whether the link is still there.
func (k *inLink) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-k.ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// read runs a lane that is up to its death, then moves its streams.
func (k *inLink) read(l *lane) {
	k.log.Debug("lane up", "peer", k.peer.id, "link", k.id, "plane", k.plane, "lane", l.index)
	h := &inLane{lane: l, link: k}
	h.stray.owner = &h.stray
	h.grants.owner, h.grants.of = &h.grants, k
	dead := l.readLoop(h, true)
	l.wg.Wait()
	k.laneDown(l, dead)
	var away *goAwayError
	if errors.As(dead, &away) && (away.code == wire.AwayUnknownLink || away.code == wire.AwayClosing) {
		k.lose(away.Error())
	}
	k.log.Info("lane down", "peer", k.peer.id, "link", k.id, "plane", k.plane, "lane", l.index, "error", dead)
}

// errRefusedEverywhere says that every endpoint of the peer refused a connection.
var errRefusedEverywhere = errors.New("every endpoint refused the connection")

// dial brings one lane up: it tries the endpoint that is the lane's own, then the others in turn, and does the handshake.
func (k *inLink) dial(r route, index int, timeout time.Duration) (*lane, error) {
	ctx, cancel := context.WithTimeout(k.ctx, timeout)
	defer cancel()
	n := len(r.endpoints)
	offset := int(k.cfg.ID[0])<<8 | int(k.cfg.ID[1])
	refused := 0
	var errs []error
	for i := range n {
		address := r.endpoints[(offset+index+i)%n]
		conn, err := r.transport.Dial(ctx, transport.DialRequest{Address: address, Peer: k.peer.id, Lane: index})
		if err == nil {
			l, err := k.greet(ctx, conn, index)
			if err == nil {
				return l, nil
			}
			_ = conn.Close()
			return nil, fmt.Errorf("%s %s: %w", k.plane, address, err)
		}
		errs = append(errs, fmt.Errorf("%s %s: %w", k.plane, address, err))
		if errors.Is(err, syscall.ECONNREFUSED) {
			refused++
		}
		var identity *transport.IdentityError
		if errors.As(err, &identity) || ctx.Err() != nil {
			break
		}
	}
	if refused == n {
		errs = append(errs, errRefusedEverywhere)
	}
	return nil, errors.Join(errs...)
}

// greet does the handshake of a dialled lane.
func (k *inLink) greet(ctx context.Context, conn transport.Conn, index int) (*lane, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	serial := k.recv.serial.Add(1)
	own := wire.HelloBody{Lowest: wire.MinVersion, Highest: wire.MaxVersion, Node: k.cfg.ID, Link: k.id, Lane: uint16(index),
		Serial: serial, OwnSecret: k.ownSecret, PeerSecret: k.peerSecret}
	if _, err := conn.Write(wire.AppendHello(nil, &own)); err != nil {
		stop()
		return nil, fmt.Errorf("mux: send HELLO: %w", err)
	}
	hello, err := readHello(conn)
	if err != nil {
		stop()
		return nil, errors.Join(err, ctx.Err())
	}
	if _, err := wire.MeetVersion(hello.Lowest, hello.Highest); err != nil {
		stop()
		return nil, err
	}
	if transport.NodeID(hello.Node) != k.peer.id {
		stop()
		return nil, &transport.IdentityError{Address: conn.Info().Remote.String(), Want: k.peer.id, Got: hello.Node}
	}
	if hello.PeerSecret != k.ownSecret || hello.Link != k.id || hello.Serial != serial {
		stop()
		return nil, &wire.Error{Kind: wire.Hello, Reason: "answers another HELLO"}
	}
	if !stop() {
		return nil, ctx.Err()
	}
	k.mu.Lock()
	if k.peerSecret == ([16]byte{}) {
		k.peerSecret = hello.OwnSecret
		k.maxStreams = int(min(hello.MaxStreams, wire.MaxIndex))
	}
	k.mu.Unlock()
	l := newLane(&k.recv.node, conn, index, serial)
	l.start()
	return l, nil
}

// evidence says why a failed dial means that the link is lost, "" while it may come back: no lane is up, and another node
// answers, or the peer does not know the link, or nobody listens on any of its ports.
func (k *inLink) evidence(err error) string {
	if k.up() {
		return ""
	}
	var identity *transport.IdentityError
	var away *goAwayError
	switch {
	case errors.As(err, &identity):
		return identity.Error()
	case errors.As(err, &away) && (away.code == wire.AwayUnknownLink || away.code == wire.AwayClosing):
		return away.Error()
	case errors.Is(err, errRefusedEverywhere):
		return errRefusedEverywhere.Error()
	}
	return ""
}
