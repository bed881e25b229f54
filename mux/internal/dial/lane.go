package dial

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// States of a lane.
const (
	laneDown   = iota // it has no connection
	laneUp            // it has one
	laneMoving        // it has left one on purpose and is about to have another
)

// Lane is one lane of a link: a pipe for as long as the link lives, and the connections that it has, one at a time.
type Lane struct {
	link  *Link
	index int
	pipe  *pipe.Pipe
	pace  *pace

	state  atomic.Int32
	downAt atomic.Int64  // node time since when there is no connection; 0 = there is one
	leftAt atomic.Int64  // the same, but that late ticks do not move it, and it stays
	mute   atomic.Bool   // the last connection was silent before it died
	news   chan struct{} // capacity 1: the keeper looks at state
	moves  chan move     // what the keeper is asked to do while the lane is up
	file   string        // the plane of the connection that holds a descriptor; the keeper's

	mu       sync.Mutex
	why      string             // why the last connection was left, in a word
	abort    context.CancelFunc // ends a planned dial
	telling  chan struct{}      // not nil: LaneLost was told since the lane was up; closed when that call has returned
	received uint64             // of the pipe, when the connection began
	ponged   int64
	history  []Connection
}

// Connection is one of a lane's connections.
type Connection struct {
	Plane         string
	Serial        uint64
	Local, Remote string
	From, To      int64 // node time; To is 0 while it is there
}

// maxHistory is how many connections a lane remembers.
const maxHistory = 8

func newLane(k *Link, index int) *Lane {
	return &Lane{link: k, index: index, pace: &k.peer.paces[index], news: make(chan struct{}, 1),
		moves: make(chan move)}
}

// Pipe is the lane's pipe.
func (l *Lane) Pipe() *pipe.Pipe { return l.pipe }

// Up says whether there is a connection that is not known to be dead.
func (l *Lane) Up() bool { return l.state.Load() == laneUp }

// DownSince is the node time since when there is none, 0 = there is one.
func (l *Lane) DownSince() int64 { return l.downAt.Load() }

// Plane is that of the connection, or of the last one; "" before the first.
func (l *Lane) Plane() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.history); n > 0 {
		return l.history[n-1].Plane
	}
	return ""
}

// Connections are the last ones, newest last.
func (l *Lane) Connections() []Connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Connection(nil), l.history...)
}

// Draining implements pipe.Keeper.
func (l *Lane) Draining() { l.link.draining.Store(true) }

// Down implements pipe.Keeper.
func (l *Lane) Down(why *pipe.DownError) { l.died(why, false) }

// died takes note that the connection is of no more use: the pipe says so, or this side is sure without it. The keeper
// does the rest.
func (l *Lane) died(why *pipe.DownError, sure bool) {
	mute := why.Reason == pipe.DownSilent || l.silent()
	l.mu.Lock()
	if l.state.Load() != laneUp || !sure && l.pipe.Up() { // late news of a former connection
		l.mu.Unlock()
		return
	}
	if sure {
		l.link.recv.cfg.Pipe.Stats.Deaths.Add(why.Reason)
	}
	l.state.Store(laneDown)
	l.left(why.Reason, mute)
	l.pace.count(l.pipe.Received() != l.received || l.pipe.Ponged() != l.ponged)
	abort := l.abort
	l.mu.Unlock()
	if abort != nil {
		abort()
	}
	if end := l.link.verdict(why); end != nil {
		l.link.lose(*end)
	}
	signal(l.news)
	l.link.recv.log.Info("lane down", "peer", l.link.peer.id, "link", l.link.number, "lane", l.index, "error", why)
}

// left takes note of why there is no connection any more. The lock is held.
func (l *Lane) left(why string, mute bool) {
	now := l.link.recv.cfg.Now()
	l.downAt.Store(now)
	l.leftAt.Store(now)
	l.why = why
	l.mute.Store(mute)
}

// silent says whether a connection that has just died had not been heard for so long that a PING has had no answer: the
// worker may find it dead first, and close it.
func (l *Lane) silent() bool {
	pings := &l.link.recv.cfg.Pings
	limit := 2 * pings.Active
	if l.link.streams.Open() == 0 {
		limit = pings.Idle + pings.Active
	}
	return l.link.recv.cfg.Now()-l.pipe.Heard() >= int64(limit)
}

// start goes on over a connection whose HELLOs are through. Only the keeper calls it, and who begins the link.
func (l *Lane) start(conn transport.Conn, own, peer *wire.HelloBody) error {
	k, info := l.link, conn.Info()
	l.mu.Lock()
	if told := l.telling; told != nil {
		l.mu.Unlock()
		<-told // so that LaneUp comes after it
		l.mu.Lock()
	}
	now := k.recv.cfg.Now()
	err := l.pipe.Start(pipe.Session{Conn: conn, PeerReceived: peer.Received, PeerLog: peer.Log, SendPings: true,
		Pings: own.Pings.Agree(peer.Pings), Plane: k.recv.cfg.Pipe.Stats.Plane(info.Plane)})
	if err != nil {
		l.mu.Unlock()
		return err
	}
	k.resume.Store(int64(min(own.Resume, wire.MaxResume, peer.Resume)))
	l.received, l.ponged = own.Received, l.pipe.Ponged()
	if n := len(l.history); n > 0 {
		k.recv.stats.tookOver(l.why, l.history[n-1].Plane != info.Plane, time.Duration(now-l.leftAt.Load()))
		l.history = l.history[max(n-maxHistory+1, 0):]
	}
	l.history = append(l.history, Connection{info.Plane, own.Serial, info.Local.String(), info.Remote.String(), now, 0})
	l.file, l.telling = info.Plane, nil
	l.downAt.Store(0)
	l.state.Store(laneUp)
	l.mu.Unlock()
	k.recv.log.Debug("lane up", "peer", k.peer.id, "link", k.number, "plane", info.Plane, "lane", l.index)
	k.tell(func(s Streams) { s.LaneUp(l.index) })
	k.peer.note(nil)
	return nil
}

// stop closes the connection and joins all who use it. Only the keeper calls it. Idempotent.
func (l *Lane) stop() (received uint64) {
	received = l.pipe.Stop()
	if l.file == "" {
		return received
	}
	l.link.recv.files.give(l.file)
	l.file = ""
	l.mu.Lock()
	l.history[len(l.history)-1].To = l.link.recv.cfg.Now()
	l.mu.Unlock()
	return received
}

// expire tells the streams, once, that the lane has been without a connection for too long.
func (l *Lane) expire(why string) {
	l.mu.Lock()
	if l.telling != nil || l.state.Load() == laneUp {
		l.mu.Unlock()
		return
	}
	told := make(chan struct{})
	l.telling = told
	l.mu.Unlock()
	defer close(told)
	l.link.tell(func(s Streams) { s.LaneLost(l.index, why) })
}

func (l *Lane) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.telling != nil
}
