package mux

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// preferAgain is how long a link stays on a plane that was not the first choice before the better ones are tried again.
// Up to a twelfth is added by chance, so that a thousand links do not try at once.
const preferAgain = time.Minute

// onDemandIdle is how long a link that was dialled on demand stays up without a stream; idleReason is why it is closed then,
// which is no failure.
const (
	onDemandIdle = 10 * time.Minute
	idleReason   = "nobody used it for 10 minutes"
)

// laneSet is the lanes of a link on one plane; each position has a goroutine that keeps it up. A link goes to another plane
// by beginning a set there. The lanes of the former set take no new streams and are let go when their last one has ended,
// so a change of plane cuts nothing and moves nothing.
type laneSet struct {
	link    *inLink
	plane   string
	ctx     context.Context // ends when the set is retired or the link is lost
	retire  context.CancelFunc
	dialErr chan error // capacity 1: no lane takes streams, and this came of dialling one
}

func (k *inLink) newSet(plane string) *laneSet {
	s := &laneSet{link: k, plane: plane, dialErr: make(chan error, 1)}
	s.ctx, s.retire = context.WithCancel(k.ctx)
	return s
}

// start runs the positions; first is up already.
func (s *laneSet) start(wg *sync.WaitGroup, first *lane) {
	for i := range s.link.cfg.lanesFor(s.plane) {
		l := first
		if i > 0 {
			l = nil
		}
		wg.Go(func() { s.run(i, l) })
	}
}

// keep runs the lanes of a link until it is lost, and joins them. Meanwhile it takes the link to another plane when its own
// does not connect any more, and back to a better one.
func (p *peer) keep(k *inLink, first *lane) {
	var wg sync.WaitGroup
	set := k.newSet(k.plane)
	k.mu.Lock()
	k.current = set
	k.mu.Unlock()
	set.start(&wg, first)
	again := time.NewTimer(k.untilAgain())
	defer again.Stop()
	for {
		var next *laneSet
		var l *lane
		select {
		case <-k.ctx.Done():
			k.lose("the peer was removed") // if nothing else ended it
			wg.Wait()
			return
		case err := <-set.dialErr:
			next, l = k.fallBack(set, err)
		case <-again.C:
			next, l = k.prefer(set)
			again.Reset(k.untilAgain())
		case <-k.idle:
			k.leave()
		}
		if next != nil {
			set = next
			set.start(&wg, l)
			p.note(nil)
		}
	}
}

func (k *inLink) untilAgain() time.Duration { return preferAgain + rand.N(preferAgain/12) }

// fallBack looks for another plane when the one of a set does not connect and no lane takes streams. When none does, that
// may be the evidence that the link is lost.
func (k *inLink) fallBack(set *laneSet, first error) (*laneSet, *lane) {
	routes := k.peer.routes()
	from, dead := rank(routes, set.plane), isRefusedEverywhere(first)
	for i, r := range routes {
		if i == from {
			continue
		}
		if k.onItsPlane() || k.isLost() { // the plane's own lanes have come back
			return nil, nil
		}
		l, err := k.dial(r, 0, 0, patience{fallbackAfter, hedgeAfter})
		if err == nil {
			next := k.newSet(r.transport.Plane())
			if !k.adopt(next, l, true) {
				k.discard(l)
				return nil, nil
			}
			if from >= 0 && i > from {
				k.fellBackFrom(set.plane, next.plane, first)
			} else {
				k.log.Info("a link goes on on another plane", "peer", k.peer.id, "from", set.plane, "to", next.plane, "error", oneLine(first))
			}
			return next, l
		}
		if why := k.evidence(err); why != "" {
			k.lose(why)
			return nil, nil
		}
		dead = dead && isRefusedEverywhere(err)
	}
	if dead && !k.up() {
		k.lose(errRefusedEverywhere.Error())
	}
	return nil, nil
}

// prefer looks whether a better plane than the one that the link is on connects by now.
func (k *inLink) prefer(set *laneSet) (*laneSet, *lane) {
	routes := k.peer.routes()
	at := rank(routes, set.plane)
	for i := range at {
		if !k.onItsPlane() {
			return nil, nil // it has other worries
		}
		l, err := k.dial(routes[i], 0, 0, patience{fallbackAfter, hedgeAfter})
		if err != nil {
			k.setFallback(err)
			k.log.Debug("a better plane still does not connect", "peer", k.peer.id, "plane", routes[i].transport.Plane(), "error", oneLine(err))
			continue
		}
		next := k.newSet(routes[i].transport.Plane())
		if !k.adopt(next, l, false) {
			k.discard(l)
			return nil, nil
		}
		if i == 0 {
			k.setFallback(nil)
		}
		k.log.Info("a link is on a better plane again", "peer", k.peer.id, "from", set.plane, "to", next.plane)
		return next, l
	}
	return nil, nil
}

// rank is the place of a plane among routes, -1 if it is not there.
func rank(routes []route, plane string) int {
	for i, r := range routes {
		if r.transport.Plane() == plane {
			return i
		}
	}
	return -1
}

// adopt makes next the link's set, with its first lane, and has the lanes of the former one let go. With ifDown it does so
// only if no lane takes streams.
func (k *inLink) adopt(next *laneSet, l *lane, ifDown bool) bool {
	k.mu.Lock()
	if k.gone || k.leaving || ifDown && k.fresh() {
		k.mu.Unlock()
		return false
	}
	for _, o := range k.lanes {
		o.leaving.Store(true)
	}
	former := k.current
	k.current, k.plane = next, next.plane
	k.add(l)
	k.mu.Unlock()
	former.retire()
	l.flush(writeUrgent)
	return true
}

// fresh says whether a lane is up that is not let go. The lock is held.
func (k *inLink) fresh() bool {
	for _, l := range k.lanes {
		if !l.leaving.Load() {
			return true
		}
	}
	return false
}

// onItsPlane says whether the link has a lane that stays.
func (k *inLink) onItsPlane() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fresh()
}

// fellBackFrom counts and logs that the link is on another plane than it should be.
func (k *inLink) fellBackFrom(from, to string, why error) {
	k.setFallback(why)
	k.stats.fellBack(from, to, fallbackReason(why))
	k.log.Warn("a link fell back to another plane; the better one is tried again each minute", "peer", k.peer.id, "from", from, "to", to, "error", oneLine(why))
}

func (k *inLink) setFallback(why error) {
	k.mu.Lock()
	k.fellBack = why
	k.mu.Unlock()
}

// fallbackReason puts the failure of a plane into one of a few words.
func fallbackReason(err error) string {
	switch {
	case transport.Denied(err):
		return "identity"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "other"
}

// noteUse takes note of whether the link is in use and says since when it has open streams, 0 = it has none. All lanes of a
// link in use are watched as those with streams are: else the streams of a host that has gone would be moved from one lane
// that is dead to the next. The lock is held; only the ticker calls it.
func (k *inLink) noteUse(now int64, late time.Duration) (busy int64) {
	if k.live > 0 || k.number != k.usedUpTo {
		k.usedAt, k.usedUpTo = now, k.number
	} else {
		k.usedAt += int64(late)
	}
	switch {
	case k.live == 0:
		k.busyAt = 0
	case k.busyAt == 0:
		k.busyAt = now
	}
	return k.busyAt
}

// leave closes a link that nobody has used for long, if that is still so, and says so to the worker.
func (k *inLink) leave() {
	k.mu.Lock()
	if k.live > 0 || k.gone || time.Duration(k.now()-k.usedAt) < onDemandIdle {
		k.mu.Unlock()
		return
	}
	k.leaving = true // whoever wants a stream from here on waits for the next link
	set := k.current
	k.mu.Unlock()
	set.retire()
	goodbye(k.upLanes(), idleReason)
	k.lose(idleReason)
}

// run is the life of one lane position: read while it is up, then dial again, until the set is retired or the link lost.
func (s *laneSet) run(index int, l *lane) {
	k := s.link
	for attempt := 0; ; attempt++ {
		if l != nil {
			attempt = 0
			k.read(l)
			l = nil
		}
		if k.recv.isClosing() {
			k.lose("the frontend closes")
		}
		if s.ctx.Err() != nil {
			return
		}
		var err error
		if l, err = s.dial(index, attempt); err == nil {
			if !k.laneUp(s, l) {
				k.discard(l)
				return
			}
			k.peer.note(nil)
			continue
		}
		if why := k.evidence(err); why != "" {
			k.lose(why)
			return
		}
		if isRefusedEverywhere(err) && len(k.peer.routes()) == 1 && !k.up() {
			k.lose(errRefusedEverywhere.Error())
			return
		}
		k.recv.files.short(k.recv, err)
		k.peer.note(err)
		if !k.onItsPlane() {
			select {
			case s.dialErr <- err:
			default:
			}
		}
		if !s.wait(backoff(attempt, backoffMax)) {
			return
		}
	}
}

// dial brings the lane of a position up.
func (s *laneSet) dial(index, attempt int) (*lane, error) {
	desc := s.link.peer.description()
	routes := s.link.recv.shared(desc)
	at := rank(routes, s.plane)
	if at < 0 {
		if len(routes) == 0 {
			return nil, s.link.recv.unusable(desc)
		}
		return nil, &leftPlaneError{s.plane}
	}
	return s.link.dial(routes[at], index, attempt, s.link.patienceWith(len(routes)))
}

// leftPlaneError says that a node's record does not list the plane of its link any more.
type leftPlaneError struct{ plane string }

func (e *leftPlaneError) Error() string { return "the peer has left plane " + e.plane }

// wait pauses and says whether the set is still in use.
func (s *laneSet) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// read runs a lane that is up to its death, then moves its streams.
func (k *inLink) read(l *lane) {
	k.log.Debug("lane up", "peer", k.peer.id, "link", k.id, "plane", l.info.Plane, "lane", l.index)
	h := &inLane{lane: l, link: k}
	h.stray.owner = &h.stray
	h.grants.owner, h.grants.of = &h.grants, k
	dead := l.readLoop(h, true)
	l.wg.Wait()
	k.laneDown(l, dead)
	k.recv.files.give(l.info.Plane)
	var away *goAwayError
	if errors.As(dead, &away) && (away.code == wire.AwayUnknownLink || away.code == wire.AwayClosing) {
		k.forgotten.Store(away.code == wire.AwayUnknownLink)
		k.lose(away.Error())
	}
	k.log.Info("lane down", "peer", k.peer.id, "link", k.id, "plane", l.info.Plane, "lane", l.index, "error", dead)
}

// discard closes a lane that came up and is not needed.
func (k *inLink) discard(l *lane) {
	l.die(deathClosed, errLaneClosed)
	l.wg.Wait()
	k.recv.files.give(l.info.Plane)
}

// letGo closes the lanes that carry nothing any more and that the link has left. It is called by the ticker only. A PONG
// says that the worker has read all that was written, so nothing is owed.
func (k *inLink) letGo(lanes []*lane, now int64) {
	for _, l := range lanes {
		if !l.leaving.Load() {
			continue
		}
		if l.open.Load() > 0 || !l.resting() {
			l.restAt = 0
			continue
		}
		if l.restAt == 0 {
			l.restAt = now
			l.sendPing()
			continue
		}
		if l.ponged.Load() >= l.restAt && k.leaveLane(l) {
			l.die(deathReplaced, errLaneClosed)
		}
	}
}

// resting says whether nothing waits to be written and nobody writes.
func (l *lane) resting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.empty() && !l.writing
}

// leaveLane takes a lane out of the link for good, unless a stream was placed there meanwhile or it is the last one.
func (k *inLink) leaveLane(l *lane) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone || l.open.Load() > 0 || !k.fresh() {
		return false
	}
	k.remove(l)
	return true
}
