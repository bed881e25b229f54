package accept

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

const (
	// maxHandshakes bounds the handshakes in progress, and maxStrangers those of addresses that have had no link.
	maxHandshakes = 256
	maxStrangers  = 192
	// handshakeTimeout is how long one may take, from accepting to the answer.
	handshakeTimeout = 5 * time.Second
	// grace is how long a known address keeps its place whoever waits: an honest frontend is through by then.
	grace = 50 * time.Millisecond
)

// errCrowded is why a handshake was given up for another one, errSlow why for none. errDone: it is through.
var (
	errCrowded = errors.New("accept: its handshake was not finished, and others needed its place")
	errDone    = errors.New("accept: its handshake is through")
	errSlow    = errors.New("accept: its handshake took longer than " + handshakeTimeout.String())
)

// shaking is a connection in its handshake.
type shaking struct {
	transport.Conn
	info  transport.ConnInfo
	known bool
	since time.Time
	at    *list.Element // its place

	ctx    context.Context // ends when the handshake must
	cancel context.CancelCauseFunc
	stop   func() bool // ends the watch on ctx
	timer  *time.Timer
}

// newShaking watches a connection: whatever it waits for, it ends with its context.
func (n *Links) newShaking(conn transport.Conn) *shaking {
	s := &shaking{Conn: conn, info: conn.Info(), since: time.Now()}
	s.known = n.knows(s.info.Remote)
	s.ctx, s.cancel = context.WithCancelCause(n.ctx)
	s.timer = time.AfterFunc(handshakeTimeout, func() { s.cancel(errSlow) })
	s.stop = context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	return s
}

// finish ends the watch. False: the connection was closed.
func (s *shaking) finish() bool {
	s.timer.Stop()
	ok := s.stop()
	s.cancel(errDone)
	return ok
}

// why is the reason for which the handshake was ended, or else err.
func (s *shaking) why(err error) error {
	if cause := context.Cause(s.ctx); cause != nil && cause != errDone {
		return cause
	}
	return err
}

// places are those of handshakes. When all are taken the oldest goes, whatever it has sent: first of strangers; one
// of an address that has had a link only for another such one, past the grace. So strangers cost those addresses
// nothing, and one another no more than a redial.
type places struct {
	mu      sync.Mutex
	taken   list.List // of *shaking, oldest first
	evicted uint64
}

// take gets a place for a handshake. False: it has ended before.
func (p *places) take(s *shaking) bool {
	for s.ctx.Err() == nil {
		victim, ok := p.try(s)
		if victim != nil {
			victim.cancel(errCrowded)
		}
		if ok {
			return true
		}
		select {
		case <-time.After(grace / 10): // the oldest one may have any age
		case <-s.ctx.Done():
		}
	}
	return false
}

// try gets a place now, that of the victim where there is one. A stranger among known ones is its own victim.
func (p *places) try(s *shaking) (victim *shaking, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	strangers, oldest := 0, p.taken.Front()
	for e := oldest; e != nil; e = e.Next() {
		if !e.Value.(*shaking).known {
			if strangers++; strangers == 1 {
				oldest = e
			}
		}
	}
	if p.taken.Len() >= maxHandshakes || !s.known && strangers >= maxStrangers {
		victim = oldest.Value.(*shaking)
		if victim.known && !s.known {
			p.evicted++
			return s, false
		}
		if victim.known && time.Since(victim.since) < grace {
			return nil, false
		}
		p.taken.Remove(oldest)
		p.evicted++
	}
	s.at = p.taken.PushBack(s)
	return victim, true
}

// leave gives a place back, if it was not lost.
func (p *places) leave(s *shaking) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken.Remove(s.at)
}

func (p *places) snapshot() (taken int, evicted uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken.Len(), p.evicted
}
