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

// Sender is the worker side of a node: it accepts the lanes of many frontends and opens the streams that their terms
// name. Methods may be called concurrently.
type Sender struct {
	node
	handshakes chan struct{} // bounds those in progress
	committed  atomic.Int64  // windows of open streams

	mu        sync.Mutex
	links     map[linkKey]*outLink
	listeners []transport.Listener
	shaking   map[*shaking]struct{}   // lanes in their handshake, so that Close can end them
	claiming  map[[16]byte]chan grant // CLAIMs under way
	draining  bool
	closing   bool
	flushable atomic.Pointer[[]*lane] // all lanes that are up, copied on change
}

type linkKey struct {
	peer transport.NodeID
	id   uint64
}

// maxHandshakes bounds handshakes in progress; a dial storm waits in the listener, and those that say nothing make room (place).
const maxHandshakes = 256

// helloTimeout is how long a new lane may take to its HELLO.
const helloTimeout = 5 * time.Second

// NewSender makes a Sender. It does nothing until Serve.
func NewSender(cfg Config) (*Sender, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sender{links: make(map[linkKey]*outLink), shaking: make(map[*shaking]struct{}), claiming: make(map[[16]byte]chan grant), handshakes: make(chan struct{}, maxHandshakes)}
	s.node.init(cfg)
	s.stats.init()
	s.flushable.Store(&[]*lane{})
	s.wg.Go(func() { s.runTicker(s.tick) })
	return s, nil
}

// Serve accepts lanes from a listener until the Sender or the listener is closed. It returns at once; Close closes the
// listener.
func (s *Sender) Serve(l transport.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return ErrClosed
	}
	s.listeners = append(s.listeners, l)
	s.wg.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.wg.Done()
		s.acceptLoop(l)
	}()
	return nil
}

func (s *Sender) acceptLoop(ln transport.Listener) {
	ctx := context.Background() // Close closes the listener, which ends Accept
	for {
		conn, err := ln.Accept(ctx)
		if err != nil {
			if !errors.Is(err, transport.ErrClosed) {
				s.log.Error("accepting lanes has ended", "error", err)
			}
			return
		}
		if !s.place() {
			_ = conn.Close()
			return
		}
		s.wg.Go(func() { s.serveLane(conn) })
	}
}

// serveLane brings a lane up and reads it to its end.
func (s *Sender) serveLane(conn transport.Conn) {
	link, l, err := s.welcome(conn)
	<-s.handshakes
	if err != nil {
		_ = conn.Close()
		s.log.Warn("a lane was refused", "plane", conn.Info().Plane, "remote", conn.Info().Remote, "error", err)
		return
	}
	l.start()
	if s.isDraining() {
		l.sendAway(wire.AwayDraining, drainText)
	}
	s.log.Debug("lane up", "link", link.id, "peer", link.peer, "plane", l.info.Plane, "lane", l.index)
	dead := l.readLoop(link, false)
	link.laneDown(l)
	s.forgetLane(l)
	s.endOlder(link.peer, s.newestLink(link.peer)) // this one, perhaps
	l.wg.Wait()
	var away *goAwayError
	if errors.As(dead, &away) && away.code == wire.AwayClosing {
		link.loseAll("the frontend has closed")
	}
	s.log.Info("lane down", "link", link.id, "peer", link.peer, "plane", l.info.Plane, "lane", l.index, "error", dead)
}

const drainText = "the worker drains"

func (s *Sender) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// welcome does the handshake. A lane that is refused gets a GOAWAY that says why.
func (s *Sender) welcome(conn transport.Conn) (*outLink, *lane, error) {
	c := &shaking{Conn: conn, sender: s, since: time.Now()}
	if !s.shake(c) {
		return nil, nil, ErrClosed
	}
	defer s.unshake(c)
	stop := time.AfterFunc(helloTimeout, func() { _ = conn.Close() })
	defer stop.Stop()
	hello, err := readHello(c)
	if err != nil {
		var bad *wire.Error
		if errors.As(err, &bad) {
			refuse(conn, nil, wire.AwayProtocol, err.Error())
		}
		return nil, nil, err
	}
	own := wire.HelloBody{Lowest: wire.MinVersion, Highest: wire.MaxVersion, Node: s.cfg.ID, Link: hello.Link, Lane: hello.Lane,
		MaxStreams: uint32(s.cfg.MaxStreams), Serial: hello.Serial, PeerSecret: hello.OwnSecret}
	if _, err := wire.MeetVersion(hello.Lowest, hello.Highest); err != nil {
		refuse(conn, &own, wire.AwayVersion, err.Error())
		return nil, nil, err
	}
	info := conn.Info()
	if info.Proven && info.Peer != transport.NodeID(hello.Node) {
		err := fmt.Errorf("mux: HELLO names node %s, the certificate proves %s", transport.NodeID(hello.Node), info.Peer)
		refuse(conn, nil, wire.AwayIdentity, err.Error())
		return nil, nil, err
	}
	if hello.PeerSecret == [16]byte{} {
		s.endOlder(hello.Node, hello.Link)
	}
	l := newLane(&s.node, conn, int(hello.Lane), hello.Serial)
	l.writing = true // nothing goes out before HELLO, though others see the lane from here on
	link, code, err := s.join(hello, l)
	if err != nil {
		refuse(conn, nil, code, err.Error())
		return nil, nil, err
	}
	own.OwnSecret = link.ownSecret
	if _, err := conn.Write(wire.AppendHello(nil, &own)); err != nil {
		l.die(deathHandshake, err)
		link.laneDown(l)
		s.forgetLane(l)
		return nil, nil, fmt.Errorf("mux: answer HELLO: %w", err)
	}
	return link, l, nil
}

func (s *Sender) shake(c *shaking) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shaking[c] = struct{}{}
	return !s.closing
}

func (s *Sender) unshake(c *shaking) {
	s.mu.Lock()
	delete(s.shaking, c)
	s.mu.Unlock()
}

// join finds or makes the link of a HELLO and adds the lane to it.
func (s *Sender) join(h *wire.HelloBody, l *lane) (*outLink, wire.GoAwayCode, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, wire.AwayClosing, ErrClosed
	}
	key := linkKey{peer: transport.NodeID(h.Node), id: h.Link}
	link := s.links[key]
	first := h.PeerSecret == [16]byte{}
	switch {
	case first && link != nil && !link.yield():
		return nil, wire.AwayUnknownLink, fmt.Errorf("mux: link %d of node %s exists; a further lane must name its secrets", h.Link, key.peer)
	case !first && (link == nil || !secretsMatch(link, h)):
		return nil, wire.AwayUnknownLink, fmt.Errorf("mux: unknown link %d of node %s", h.Link, key.peer)
	case first && link == nil && len(s.links) >= s.cfg.MaxLinks:
		return nil, wire.AwayLimit, fmt.Errorf("mux: %d links are open, no more are allowed", len(s.links))
	case first:
		link = &outLink{node: &s.node, sender: s, peer: key.peer, id: h.Link, lanes: make(map[uint64]*lane), peerSecret: h.OwnSecret, ownSecret: newSecret()}
		s.links[key] = link
	}
	link.mu.Lock()
	defer link.mu.Unlock()
	if link.gone {
		return nil, wire.AwayUnknownLink, fmt.Errorf("mux: link %d of node %s is gone", h.Link, key.peer)
	}
	if len(link.lanes) >= 2*MaxLanes || link.lanes[l.serial] != nil {
		return nil, wire.AwayLimit, fmt.Errorf("mux: link %d has %d lanes, or serial %d twice", h.Link, len(link.lanes), l.serial)
	}
	link.lanes[l.serial] = l
	link.idleAt = 0
	lanes := append(slices.Clone(*s.flushable.Load()), l)
	s.flushable.Store(&lanes)
	return link, 0, nil
}

// endOlder ends the links of a node that have no lane and are older than one that the node has begun: it begins one only after
// the one before is lost, so nobody will ever ask for what an older link holds.
func (s *Sender) endOlder(peer transport.NodeID, newest uint64) {
	var over []*outLink
	s.mu.Lock()
	for key, k := range s.links {
		if key.peer == peer && key.id < newest && k.superseded() {
			delete(s.links, key)
			over = append(over, k)
		}
	}
	s.mu.Unlock()
	for _, k := range over {
		s.log.Info("a link has ended because its frontend has begun another", "link", k.id, "peer", peer, "newer", newest)
		k.loseAll("the frontend has begun another link")
	}
}

// newestLink is the highest number among the links of a node that have a lane, 0 when none has.
func (s *Sender) newestLink(peer transport.NodeID) (newest uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, k := range s.links {
		if key.peer == peer && key.id > newest && k.hasLane() {
			newest = key.id
		}
	}
	return newest
}

func (k *outLink) hasLane() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.lanes) > 0
}

// superseded marks a link without a lane as gone, so that no lane joins it any more.
func (k *outLink) superseded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lanes) > 0 {
		return false
	}
	k.gone = true
	return true
}

// yield gives the link's name up for a new first lane, unless it has lanes or streams.
func (k *outLink) yield() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lanes) > 0 || k.live > 0 {
		return false
	}
	k.gone = true
	return true
}

func (s *Sender) forgetLane(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := slices.DeleteFunc(slices.Clone(*s.flushable.Load()), func(o *lane) bool { return o == l })
	s.flushable.Store(&lanes)
}

// violated implements recordHandler. It ends the streams of a lane whose frontend broke the protocol, after what was sent:
// they do not go on elsewhere. A GOAWAY is no violation.
func (k *outLink) violated(l *lane, why error) {
	var bad *wire.Error
	if !errors.As(why, &bad) {
		return
	}
	var fx effects
	k.mu.Lock()
	k.each(func(_ *outSlot, s *OutStream) {
		if s.lane != l || s.state != outOpen {
			return
		}
		end := End{Type: EndProtocol, Text: bad.Error()}
		s.appendEnd(end)
		s.end.Store(&EndError{End: end})
		if done := s.done; done != nil {
			fx.add(func() { close(done) })
		}
		s.wakeup(&fx)
	})
	k.mu.Unlock()
	fx.run()
}

// commit takes n bytes of the replay bound.
func (s *Sender) commit(n uint64) bool {
	for {
		have := s.committed.Load()
		if have+int64(n) > s.cfg.MaxReplay {
			return false
		}
		if s.committed.CompareAndSwap(have, have+int64(n)) {
			return true
		}
	}
}

func (s *Sender) uncommit(n uint64) { s.committed.Add(-int64(n)) }

// Attach opens the stream that terms name. It fails with ErrStaleTerms, ErrTermsVersion, ErrBusy, ErrDraining, ErrNoLink
// or ErrClosed.
func (s *Sender) Attach(terms []byte) (*OutStream, error) {
	t, err := wire.ParseTerms(terms)
	if err != nil {
		s.stats.refused.Add(1)
		return nil, err
	}
	stream, err := s.attach(&t)
	if err != nil {
		s.stats.refused.Add(1)
	}
	return stream, err
}

func (s *Sender) attach(t *wire.Terms) (*OutStream, error) {
	if t.Worker != [16]byte(s.cfg.ID) {
		return nil, fmt.Errorf("%w: they are for node %s, this is %s", ErrStaleTerms, transport.NodeID(t.Worker), s.cfg.ID)
	}
	s.mu.Lock()
	link := s.links[linkKey{peer: transport.NodeID(t.Frontend), id: t.Link}]
	closing, draining := s.closing, s.draining
	s.mu.Unlock()
	switch {
	case closing:
		return nil, ErrClosed
	case draining:
		return nil, ErrDraining
	case link == nil:
		return nil, fmt.Errorf("%w: link %d of node %s", ErrNoLink, t.Link, transport.NodeID(t.Frontend))
	}
	return link.attach(t)
}

// Flush has what every lane holds written: the end of an engine's pass. The records of all engines of a process that go to
// one frontend share its lanes.
func (s *Sender) Flush() {
	for _, l := range *s.flushable.Load() {
		l.flush(writeFlush)
	}
}

// tick runs the Sender's timers.
func (s *Sender) tick(now, last int64, late time.Duration) {
	for _, l := range *s.flushable.Load() {
		l.watch(now, late, false, 0)
	}
	// Once a second is enough for what counts in seconds, and it visits every stream.
	second := now/int64(time.Second) != last/int64(time.Second)
	if !second && late == 0 {
		return
	}
	for _, l := range *s.flushable.Load() {
		l.flushForgotten()
	}
	s.mu.Lock()
	links := make([]*outLink, 0, len(s.links))
	for _, k := range s.links {
		links = append(links, k)
	}
	s.mu.Unlock()
	wall := time.Now()
	for _, k := range links {
		if k.expire(now, late, wall) {
			key := linkKey{peer: k.peer, id: k.id}
			s.mu.Lock()
			if s.links[key] == k { // else a new link has the name
				delete(s.links, key)
			}
			s.mu.Unlock()
		}
	}
}

// openStreams is how many streams are open or ended and not yet acknowledged.
func (s *Sender) openStreams() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.links {
		k.mu.Lock()
		n += k.live
		k.mu.Unlock()
	}
	return n
}

// Drain refuses new terms, tells the frontends with GOAWAY and waits until every stream's END is acknowledged. That happens
// on receipt, so slow clients do not hold it. A frontend that is dead holds it: its streams are kept for Hold from when their
// lane died (silence is noticed after three ActivePings), since it may only have lost its lanes. ctx is the bound.
func (s *Sender) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	for _, l := range *s.flushable.Load() {
		l.sendAway(wire.AwayDraining, drainText)
	}
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for s.openStreams() > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("mux: drain: %d streams are left: %w", s.openStreams(), ctx.Err())
		case <-s.done:
			return ErrClosed
		case <-t.C:
		}
	}
	return nil
}

// Close ends all streams as lost, closes lanes and listeners and joins every goroutine. It is idempotent.
func (s *Sender) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.closing = true
	listeners, links := s.listeners, s.links
	s.links = make(map[linkKey]*outLink)
	shaking := slices.Collect(maps.Keys(s.shaking))
	s.mu.Unlock()
	close(s.done)
	for _, c := range shaking {
		_ = c.Close()
	}
	var errs []error
	goodbye(*s.flushable.Load(), "the worker closes")
	for _, k := range links {
		k.loseAll("the worker has closed")
	}
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

// Stats is a snapshot. It visits every open stream once.
func (s *Sender) Stats() Stats {
	st := s.stats.snapshot()
	st.CommittedBytes = s.committed.Load()
	s.mu.Lock()
	links := make([]*outLink, 0, len(s.links))
	for _, k := range s.links {
		links = append(links, k)
	}
	s.mu.Unlock()
	st.Links = len(links)
	for _, k := range links {
		k.mu.Lock()
		st.OpenStreams += int64(k.live)
		k.each(func(_ *outSlot, o *OutStream) { st.ReplayBytes += int64(o.ring.tail - o.ring.base) })
		for _, l := range k.lanes {
			st.Lanes = append(st.Lanes, l.snapshot(k.peer, ""))
		}
		k.mu.Unlock()
	}
	return st
}
