package mux

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

const (
	// bulkPerWrite is how much bulk one write takes: what a PING or a first record waits for at most.
	bulkPerWrite = 64 << 10
	// urgentPerWrite bounds the urgent part of a write; the rest stays first in line.
	urgentPerWrite = 256 << 10
	// quantum is how much of one stream a lane takes at a visit, before the next stream has its turn.
	quantum = 16 << 10
	// urgentFirst is the longest first DATA that goes out as urgent.
	urgentFirst = 4 << 10
	// lazyAfter is how long CONSUMED(end) may wait for company.
	lazyAfter = 50 * time.Millisecond
)

// lane is one connection of a link and what waits to be written to it. Both sides use it; what stands in its lists are
// OutStreams on a Sender and InStreams (with control to send) on a Receiver.
type lane struct {
	node   *node
	conn   transport.Conn
	try    transport.TryWriter // nil: only the writer goroutine writes
	info   transport.ConnInfo
	plane  *planeCounters
	index  int
	serial uint64

	wake  chan struct{} // capacity 1: the writer has something to look at
	done  chan struct{} // closed at death
	timer *time.Timer   // ends a wait for the gap; its channel belongs to the writer
	wg    sync.WaitGroup

	mu     sync.Mutex
	urgent list
	bulk   list
	lately lately // on a worker
	queued int    // bytes of streams in the lists
	// flushed: a Flush came since the last gather. The writer gathers only then, so it never cuts half a pass.
	flushed bool
	hurry   bool // somebody waits for room that what is queued makes
	// writing: somebody owns batch and the connection's write side. It is passed on, never held twice.
	writing bool
	rest    []byte // what an inline write could not place; the writer goroutine goes on with it and owns writing
	armed   bool   // timer runs
	tat     int64  // theoretical arrival time of the gap rule, in node time
	lazy    int64  // since when a CONSUMED(end) waits; 0 = none
	ping    bool   // PING due
	pong    bool   // PONG due
	pongVal uint64
	away    []byte // GOAWAY due, encoded
	dead    *laneError
	claims  claims // a worker's CLAIMs
	owed    owed   // a frontend's ended streams
	batch   []byte

	open     atomic.Int64 // streams placed on the lane
	lastRecv atomic.Int64 // node time of the last byte
	waiting  atomic.Bool  // the reader is in Read, so silence is the peer's
	since    atomic.Int64 // node time since when streams are open
	pinged   atomic.Int64 // node time of the last PING
	ponged   atomic.Int64 // node time of the PING that the last PONG answers; of the lane's birth before there is one
	rtt      atomic.Int64 // nanoseconds, 0 = not known
	handicap uint64       // of a frontend's lane: what counts as carried though it was not; set before the lane is used
	leaving  atomic.Bool  // its link has gone to another plane: it takes no new streams
	restAt   int64        // of a leaving lane, for the ticker: since when nothing is open or waits; 0 = something is

	bytesIn, bytesOut     atomic.Uint64
	recordsIn, recordsOut atomic.Uint64
}

func newLane(n *node, conn transport.Conn, index int, serial uint64) *lane {
	l := &lane{node: n, conn: conn, info: conn.Info(), plane: n.stats.plane(conn.Info().Plane), index: index, serial: serial,
		wake: make(chan struct{}, 1), done: make(chan struct{}), timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	l.claims.owner, l.owed.owner = &l.claims, &l.owed
	if !n.cfg.NoInlineWrite {
		l.try, _ = conn.(transport.TryWriter)
	}
	l.lastRecv.Store(n.now())
	l.ponged.Store(n.now())
	return l
}

// start lets writes begin, now that the HELLOs are through, and runs the writer.
func (l *lane) start() {
	l.mu.Lock()
	l.writing = false
	wake := l.flushed && !l.empty()
	l.mu.Unlock()
	l.wg.Go(l.writeLoop)
	if wake {
		l.wakeWriter()
	}
}

// die closes the lane, once; the first reason counts. It never waits.
func (l *lane) die(reason string, err error) {
	l.mu.Lock()
	if l.dead != nil {
		l.mu.Unlock()
		return
	}
	l.dead = &laneError{reason: reason, err: err}
	l.mu.Unlock()
	close(l.done)
	_ = l.conn.Close()
	l.node.stats.deaths.add(reason)
}

// deadErr is why the lane died, nil while it lives.
func (l *lane) deadErr() *laneError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// empty says whether nothing waits. The lock is held.
func (l *lane) empty() bool {
	return l.urgent.first == nil && l.bulk.first == nil && !l.ping && !l.pong && l.away == nil
}

// prompt says whether something waits that never waits for the gap. The lock is held.
func (l *lane) prompt() bool {
	return l.urgent.first != nil || l.hurry || l.ping || l.pong || l.away != nil
}

// hasten has the next Flush not wait for the gap: whoever filled the window can't add to what waits. The stream's lock is held and its lane is l.
func (l *lane) hasten() {
	l.mu.Lock()
	l.hurry = true
	l.mu.Unlock()
}

// enqueue puts a stream's element into a list and counts n bytes. The stream's lock is held and its lane is l. A stream
// that already waits keeps its place, but urgent news lifts it.
func (l *lane) enqueue(e *element, n int, urgent bool) {
	l.mu.Lock()
	l.queued += n
	l.place(e, urgent)
	l.mu.Unlock()
}

// enqueueNext is enqueue of a stream that got a record.
func (l *lane) enqueueNext(s *OutStream, n int, urgent bool) {
	l.mu.Lock()
	l.queued += n
	l.place(&s.element, urgent)
	ahead := l.lately.next(s)
	l.mu.Unlock()
	ahead.fetch()
}

// place is enqueue without the lock.
func (l *lane) place(e *element, urgent bool) {
	switch {
	case e.on == onUrgent || e.on == onBulk && !urgent:
		return
	case e.on == onBulk:
		l.bulk.remove(e)
	}
	if urgent {
		e.on = onUrgent
		l.urgent.push(e)
		return
	}
	e.on = onBulk
	l.bulk.push(e)
}

// placeFirst puts a stream that is being visited first into the bulk list, unless it was made urgent between its removal and
// the visit; it may stand in the list again too. The locks of lane and stream are held.
func (l *lane) placeFirst(e *element) {
	switch e.on {
	case onUrgent:
		return
	case onBulk:
		l.bulk.remove(e)
	}
	e.on = onBulk
	l.bulk.pushFront(e)
}

// dequeue takes a stream's element out of the lists, with n bytes that will not be sent here. The stream's lock is held.
func (l *lane) dequeue(e *element, n int) {
	l.mu.Lock()
	l.queued -= n
	l.lately.leave(e)
	switch e.on {
	case onUrgent:
		l.urgent.remove(e)
	case onBulk:
		l.bulk.remove(e)
	}
	e.on = onNone
	l.mu.Unlock()
}

// sendPong, sendPing and sendAway note control of the lane itself: state, never a queue.
func (l *lane) sendPong(value uint64) {
	l.mu.Lock()
	l.pong, l.pongVal = true, value
	l.mu.Unlock()
	l.flush(writeUrgent)
}

func (l *lane) sendPing() {
	l.mu.Lock()
	l.ping = true
	l.mu.Unlock()
	l.pinged.Store(l.node.now())
	l.flush(writeUrgent)
}

// mute says whether two PINGs in a row got no answer, or nothing came at all until the lane was found dead. The worker may find
// it dead first, and close it.
func (l *lane) mute(why *laneError) bool {
	every := l.node.cfg.ActivePing
	if every == 0 {
		every = l.node.cfg.KeepAlive
	}
	return why.reason == deathSilent || l.pinged.Load()-l.ponged.Load() >= int64(2*every)
}

func (l *lane) sendAway(code wire.GoAwayCode, text string) {
	l.mu.Lock()
	l.away = wire.AppendGoAway(nil, code, text)
	l.mu.Unlock()
	l.flush(writeUrgent)
}

// gapWait is how long bulk must still wait. The lock is held.
//
// A write at now sets tat = min(max(tat, now) + gap, now + 5 gap); bulk alone may start at tat - 4 gap, or when a whole
// write's worth waits. So below 1/gap writes a second nothing ever waits, and nothing waits longer than one gap after
// the last write.
func (l *lane) gapWait(now int64) time.Duration {
	gap := int64(l.node.cfg.GapMax)
	if gap == 0 || l.prompt() || l.queued >= bulkPerWrite {
		return 0
	}
	return time.Duration(max(l.tat-4*gap-now, 0))
}

// flush has what waits written: by the caller where the plane can write without blocking and nobody writes, else by the
// writer goroutine, else when the gap is over.
func (l *lane) flush(reason writeReason) {
	l.mu.Lock()
	if l.dead != nil || l.empty() {
		l.mu.Unlock()
		return
	}
	l.flushed = true
	if l.writing {
		l.mu.Unlock() // whoever writes looks again before it stops
		return
	}
	if l.waitForGap() {
		l.mu.Unlock()
		return
	}
	if l.try == nil {
		l.mu.Unlock()
		l.wakeWriter()
		return
	}
	l.writing = true
	l.mu.Unlock()
	l.writeInline(reason)
}

// waitForGap arms the timer when the gap is not over and says whether it did. The lock is held.
func (l *lane) waitForGap() bool {
	wait := l.gapWait(l.node.now())
	if wait <= 0 {
		return false
	}
	if !l.armed {
		l.armed = true
		l.timer.Reset(wait)
	}
	return true
}

// enqueueLazy notes that the CONSUMED(end) of a stream waits for company, and that it is owed. The stream's lock is held.
func (l *lane) enqueueLazy(s *InStream) {
	l.mu.Lock()
	l.place(&s.element, false)
	l.owed.note(l.owedOf(s))
	if l.lazy == 0 {
		l.lazy = l.node.now()
	}
	l.mu.Unlock()
}

// flushDue flushes when a CONSUMED(end) has waited long enough, or when all that waits has been waiting for a forgotten
// Flush.
func (l *lane) flushDue(now int64) {
	l.mu.Lock()
	due := l.lazy != 0 && now-l.lazy >= int64(lazyAfter)
	l.mu.Unlock()
	if due {
		l.flush(writeTick)
	}
}

// flushForgotten writes what was Put and never flushed, and counts it.
func (l *lane) flushForgotten() {
	l.mu.Lock()
	forgotten := !l.flushed && !l.writing && l.lazy == 0 && !l.empty() && l.dead == nil
	l.mu.Unlock()
	if forgotten {
		l.node.stats.forgotten.Add(1)
		l.flush(writeTick)
	}
}

func (l *lane) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// goodbyeTimeout is how long a lane may take to say that its node closes.
const goodbyeTimeout = 250 * time.Millisecond

// goodbye says on every lane that this node closes, so that the peer need not wait to find out, and closes the lanes once
// the peer has heard it, or soon. The caller has made sure that the lanes' readers end their links when they end.
func goodbye(lanes []*lane, text string) {
	var wg sync.WaitGroup
	for _, l := range lanes {
		wg.Go(func() {
			l.sendAway(wire.AwayClosing, text)
			t := time.NewTimer(goodbyeTimeout)
			defer t.Stop()
			select {
			case <-l.done: // the peer has closed the lane
			case <-t.C:
			}
			l.die(deathClosed, errLaneClosed)
		})
	}
	wg.Wait()
}

var errLaneClosed = errors.New("closed by this side")
