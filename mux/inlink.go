package mux

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// inLink is a Receiver's side of a link: its slots and lanes. Lost is final; a new link has a new number and an empty
// table.
type inLink struct {
	*node
	recv       *Receiver
	peer       *peer
	id         uint64
	ownSecret  [16]byte
	peerSecret [16]byte
	maxStreams int
	ctx        context.Context // ends when the link is lost
	cancel     context.CancelFunc
	closing    atomic.Int64 // slots that wait for the worker's END
	suspect    atomic.Int64 // node time of a Suspect that is not settled; 0 = none
	forgotten  atomic.Bool  // the worker does not know the link, and so takes another one; set before the link is lost

	pages atomic.Pointer[[]*slotArray] // copied when it grows

	gate   *gate // of its first dial
	silent bool  // that one took longer than a place in a gate is kept; of the goroutine that makes it

	mu       sync.Mutex
	free     []uint32 // indexes in the order in which they came free
	freeHead int
	top      uint32 // highest index ever used
	gens     []uint8
	number   uint64
	live     int // slots in use
	lanes    []*lane
	stranded int       // streams without a lane
	owed     []owedEnd // of dead lanes, while no lane is up
	downAt   int64     // node time since when no lane is up; 0 = one is
	mute     bool      // the lane that died last was mute
	draining bool
	reason   string // why it was lost
	gone     bool

	plane    string   // of the lanes that are dialled
	current  *laneSet // those lanes
	fellBack error    // why the link is not on the first plane that both sides have, nil when it is
	leaving  bool     // it is being closed because nobody uses it
	usedAt   int64    // node time of the last tick that found it in use
	usedUpTo uint64   // number at that time
	busyAt   int64    // node time of the first tick of those without a break that found open streams; 0 = the last one found none

	idle chan struct{} // capacity 1: nobody has used the link for long
}

// placementSlack is by which part of the fewest open streams, and one, a lane may be above it and still get the next one.
const placementSlack = 8

// emptiest is the lane for the next stream: of those with the fewest open streams, or hardly more, the one that has carried the
// fewest bytes, with what its open streams will bring if they are like those before. Lengths of streams are heavy-tailed, so equal numbers of
// streams alone leave the lanes up to 1.6 times as busy as the mean. Lanes that are let go are the last choice. The lock is held and a lane is up.
func (k *inLink) emptiest() *lane {
	staying := k.fresh()
	fewest, carried := int64(math.MaxInt64), uint64(0)
	for _, l := range k.lanes {
		if l.leaving.Load() != staying {
			fewest = min(fewest, l.open.Load())
			carried += l.carried()
		}
	}
	most := fewest
	if fewest > 0 { // nobody shares a lane while another one is empty
		most += 1 + fewest/placementSlack
	}
	each := carried / max(k.number, 1) // what a stream brings
	var best *lane
	var least uint64
	var bestOpen int64
	for _, l := range k.lanes {
		open := l.open.Load()
		if l.leaving.Load() == staying || open > most {
			continue
		}
		if load := l.carried() + uint64(open)*each; best == nil || load < least || load == least && open < bestOpen {
			best, least, bestOpen = l, load, open
		}
	}
	if best == nil { // all numbers have risen meanwhile
		best = k.lanes[0]
	}
	return best
}

// carried is what a lane has brought, with what it was given when it came up.
func (l *lane) carried() uint64 { return l.bytesIn.Load() + l.handicap }

// laneUp adds a lane of a set, unless the link is lost or has left the set.
func (k *inLink) laneUp(s *laneSet, l *lane) bool {
	k.mu.Lock()
	if k.gone || k.leaving || k.current != s {
		k.mu.Unlock()
		return false
	}
	k.add(l)
	k.mu.Unlock()
	l.flush(writeUrgent)
	return true
}

// add adds a lane and gives it the streams that have none; it must be flushed then. The lock is held.
func (k *inLink) add(l *lane) {
	if len(k.lanes) > 0 { // a lane that is new need not make up for all that the others have carried
		l.handicap = slices.MinFunc(k.lanes, func(a, b *lane) int { return cmp.Compare(a.carried(), b.carried()) }).carried()
	}
	k.lanes = append(k.lanes, l)
	k.downAt = 0
	if k.stranded > 0 {
		k.each(func(s *InStream) {
			if s.lane == nil {
				k.place(s, l)
			}
		})
		k.stranded = 0
	}
	k.owe(l, k.owed)
	k.owed = nil
}

// remove takes a lane out of those that are up. The lock is held.
func (k *inLink) remove(l *lane) {
	if i := slices.Index(k.lanes, l); i >= 0 {
		k.lanes = slices.Delete(k.lanes, i, i+1)
	}
}

// laneDown takes a dead lane out and moves its streams. It is the last act of the lane's reader, so what the lane had
// brought is in the streams, and each knows how far it got.
func (k *inLink) laneDown(l *lane, why *laneError) {
	k.mu.Lock()
	k.remove(l)
	k.mute = l.mute(why)
	if len(k.lanes) == 0 && k.downAt == 0 {
		k.downAt = k.now()
	}
	var touched []*lane
	var ended []*InStream
	if owed := l.takeOwed(); len(k.lanes) == 0 {
		k.owe(nil, owed)
	} else if len(owed) > 0 {
		touched = append(touched, k.emptiest())
		k.owe(touched[0], owed)
	}
	k.each(func(s *InStream) {
		if s.lane != l {
			return
		}
		l.dequeue(&s.element, 0)
		l.closed()
		s.leave(k.now())
		if s.state == inMinted || s.state == inLive {
			switch {
			case why.reason == deathProtocol:
				// What broke once would break the next lane: these streams do not go on.
				s.kill(End{Type: EndProtocol, Text: why.err.Error()})
				ended = append(ended, s)
			case k.cfg.ResumeTimeout == 0:
				s.kill(End{Type: EndLost, Text: "the lane died: " + why.err.Error()})
				ended = append(ended, s)
			}
		}
		if len(k.lanes) == 0 {
			k.stranded++
			return
		}
		to := k.emptiest()
		k.place(s, to)
		touched = append(touched, to)
	})
	k.mu.Unlock()
	k.deliverEnds(ended)
	for _, to := range touched {
		to.flush(writeUrgent) // cheap for a lane that was flushed already
	}
}

// place moves a stream without a lane to l: RESUME from what was received, with STOP and KILL as they are due. The locks of
// link and stream are held.
func (k *inLink) place(s *InStream, l *lane) {
	s.lane, s.cut = l, false
	s.moveTo(l, k.now())
	l.opened()
	s.wants = 0
	if s.state == inClosing {
		s.wants = wantKill
	} else {
		s.move++
		s.wants = wantResume
		if s.stopAsked {
			s.wants |= wantStop
		}
		k.stats.moved.Add(1)
	}
	l.enqueue(&s.element, 0, true)
}

// confirmed settles a suspicion: true when the node has had its time and nothing came on any lane.
func (k *inLink) confirmed(lanes []*lane, now int64, late time.Duration) bool {
	since := k.suspect.Load()
	if since == 0 {
		return false
	}
	if late > 0 {
		k.suspect.CompareAndSwap(since, now) // this process was stopped; the node gets its second
		return false
	}
	for _, l := range lanes {
		// The answer to the question, or bytes that cannot have been on their way when it was asked.
		if l.ponged.Load() >= since || l.lastRecv.Load() > since+int64(suspectFor/2) {
			k.suspect.CompareAndSwap(since, 0)
			return false
		}
	}
	if now-since < int64(suspectFor) {
		return false
	}
	k.suspect.Store(0)
	return true
}

// upLanes are the lanes that are up now.
func (k *inLink) upLanes() []*lane {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*lane(nil), k.lanes...)
}

// lose ends the link for good: every live stream ends as lost, all slots are gone.
func (k *inLink) lose(why string) {
	k.mu.Lock()
	if k.gone {
		k.mu.Unlock()
		return
	}
	k.gone, k.reason = true, why
	var ended []*InStream
	k.each(func(s *InStream) {
		if s.state == inClosing {
			k.closing.Add(-1)
		}
		s.state = inFree
		if s.lane != nil {
			s.lane.dequeue(&s.element, 0)
			s.lane.closed()
			s.leave(k.now())
		}
		if s.end == nil {
			s.finish(End{Type: EndLost, Text: why})
		}
		ended = append(ended, s) // also those that were killed: a sink waits for the END that comes no more
	})
	k.pages.Store(&[]*slotArray{})
	k.live, k.stranded, k.owed = 0, 0, nil
	lanes := k.lanes
	k.lanes = nil
	k.mu.Unlock()
	k.cancel()
	for _, l := range lanes {
		l.die(deathClosed, errLaneClosed)
	}
	k.deliverEnds(ended)
}

// retryAfter is how long a link may be without a lane before requests that have no record yet are told.
const retryAfter = 500 * time.Millisecond

// checkTimes ends the streams whose time is up, and tells those without a record that the link is down.
func (k *inLink) checkTimes(now int64, late time.Duration) {
	var flush []*lane
	var ended []*InStream
	k.mu.Lock()
	down := k.downAt != 0 && now-k.downAt >= int64(retryAfter)
	k.each(func(s *InStream) {
		if late > 0 { // this process was stopped: the worker was not silent
			s.firstBy, s.lastData = later(s.firstBy, late), later(s.lastData, late)
		}
		if l, over := s.overdue(now); over {
			ended = append(ended, s)
			if l != nil {
				flush = append(flush, l)
			}
		}
		if down && !s.cut && s.records == 0 {
			s.cut = true
			s.rouse()
		}
	})
	k.mu.Unlock()
	for _, l := range flush {
		l.flush(writeUrgent)
	}
	k.deliverEnds(ended)
}

func later(at int64, by time.Duration) int64 {
	if at == 0 {
		return 0
	}
	return at + int64(by)
}

// up says whether a lane is up.
func (k *inLink) up() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.lanes) > 0 && !k.gone && !k.leaving
}

// outlook says whether the link takes new streams, and if not, whether it will once it has a lane again.
func (k *inLink) outlook() (now, soon bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	takes := !k.gone && !k.leaving && !k.draining
	return takes && len(k.lanes) > 0, takes && len(k.lanes) == 0
}

// mints says whether the link takes new streams.
func (k *inLink) mints() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.lanes) > 0 && !k.gone && !k.leaving && !k.draining
}
