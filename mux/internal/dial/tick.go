package dial

import (
	"errors"
	"fmt"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

const (
	// onDemandIdle is how long a link that was dialled on demand stays up without a stream; idleReason is why it is
	// closed then, which is no failure.
	onDemandIdle = 10 * time.Minute
	idleReason   = "nobody used it for 10 minutes"
	// suspectFor is how long a node whose record has gone may take to answer.
	suspectFor = time.Second
	// stuckFor is how long a keeper that resumes nothing may take to stop a connection before the ticker ends the
	// lane's streams.
	stuckFor = time.Second
)

// use is since when a link is used. The link's lock guards it.
type use struct {
	usedAt int64 // node time of its last use
	busyAt int64 // node time of the first tick without a break that found open streams; 0 = the last one found none
}

// Tick runs the links' timers. It is called by the node's ticker alone: now and last are the times of this tick and the
// one before, late is by how much it came too late beyond what is common. A process that was stopped must not take its
// own silence for its peers', so deadlines move by it.
func (r *Peers) Tick(now, last int64, late time.Duration) {
	for _, p := range r.snapshot() {
		if k := p.link.Load(); k != nil && k.end() == nil {
			k.tick(now, late)
		}
	}
}

func (k *Link) tick(now int64, late time.Duration) {
	busy := k.noteUse(now, late)
	expired, limit := 0, time.Duration(k.resume.Load())
	for _, l := range k.lanes {
		l.pipe.Tick(now, late, busy)
		if l.overdue(now, late, limit) {
			l.expire(fmt.Sprintf("no connection to the worker for %v", limit))
		}
		if l.isLost() {
			expired++
		}
	}
	if limit > 0 && expired == len(k.lanes) {
		k.lose(ending{why: fmt.Sprintf("no lane to the worker for %v", limit)})
	}
	k.settleSuspicion(now, late)
}

// overdue says whether a lane has no connection and should long have one. Only the ticker calls it.
func (l *Lane) overdue(now int64, late, limit time.Duration) bool {
	if limit == 0 {
		limit = stuckFor
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.downAt.Load()
	if at != 0 && late > 0 {
		at += int64(late)
		l.downAt.Store(at)
	}
	return at != 0 && now-at >= int64(limit)
}

// noteUse takes note of whether the link is in use, and ends one that was dialled on demand and that nobody has used
// for long. It says since when there are open streams, 0 = there are none. All lanes of a link in use are watched as
// those with streams are: the streams of a host that has gone must not find one dead lane after the other.
func (k *Link) noteUse(now int64, late time.Duration) (busy int64) {
	open := k.streams.Open() > 0
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !open:
		k.busyAt = 0
		k.usedAt += int64(late)
	case k.busyAt == 0:
		k.busyAt = now
	}
	if open {
		k.usedAt = now
	}
	if k.recv.cfg.OnDemand && now-k.usedAt >= int64(onDemandIdle) && k.ended == nil {
		k.ended = &ending{why: idleReason, away: wire.AwayClosing}
		k.cancel()
	}
	return k.busyAt
}

// taken takes note that somebody is about to use the link, and says why that cannot be.
func (k *Link) taken() error {
	k.mu.Lock()
	k.usedAt = max(k.usedAt, k.recv.cfg.Now())
	k.mu.Unlock()
	return k.Takes()
}

// Suspect says that there is reason to think that a node has died: its record has left the registry. It is asked, and
// if nothing at all arrives from it for a second its connections are dead; if anything does, nothing happens.
func (r *Peers) Suspect(id transport.NodeID) {
	p := r.peer(id)
	if p == nil {
		return
	}
	k := p.link.Load()
	if k == nil {
		return
	}
	k.suspect.Store(r.cfg.Now())
	for _, l := range k.lanes {
		l.pipe.Ping()
	}
}

// settleSuspicion ends the connections of a node that has had its time and that said nothing on any lane.
func (k *Link) settleSuspicion(now int64, late time.Duration) {
	since := k.suspect.Load()
	if since == 0 {
		return
	}
	if late > 0 {
		k.suspect.CompareAndSwap(since, now) // this process was stopped; the node gets its second
		return
	}
	for _, l := range k.lanes {
		// The answer to the question, or bytes that cannot have been on their way when it was asked.
		if l.Up() && (l.pipe.Ponged() >= since || l.pipe.Heard() > since+int64(suspectFor/2)) {
			k.suspect.CompareAndSwap(since, 0)
			return
		}
	}
	if now-since < int64(suspectFor) {
		return
	}
	k.suspect.Store(0)
	for _, l := range k.lanes {
		l.died(&pipe.DownError{Reason: pipe.DownSilent, Err: errGone}, true)
	}
}

var errGone = errors.New("the worker's record has gone and it does not answer")
