package mux

import (
	"errors"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// silentGrace is how long a connection that has not sent a byte yet keeps its place among the handshakes when another one waits
// for it. An honest dialler sends its HELLO at once; one that never does would keep the place for helloTimeout.
const silentGrace = 250 * time.Millisecond

// errSaidNothing is why such a connection was closed.
var errSaidNothing = errors.New("mux: it has said nothing for " + silentGrace.String() + " while other connections waited for their handshakes")

// shaking is a connection in its handshake. The Sender's lock guards its fields.
type shaking struct {
	transport.Conn
	sender *Sender
	since  time.Time
	heard  bool // a byte has come
	left   bool // it was closed because none did
}

// Read implements io.Reader.
func (c *shaking) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.sender.mu.Lock()
	defer c.sender.mu.Unlock()
	if n > 0 {
		c.heard = true
	}
	if err != nil && c.left {
		err = errSaidNothing
	}
	return n, err
}

// place waits for one of the places of handshakes. When all are taken it closes the oldest connections that have sent nothing, so that
// many silent ones delay a lane by moments only. False: the Sender closes.
func (s *Sender) place() bool {
	for {
		select {
		case s.handshakes <- struct{}{}:
			return true
		case <-s.done:
			return false
		default:
		}
		wait := time.NewTimer(s.closeSilent(time.Now()))
		select {
		case s.handshakes <- struct{}{}:
			wait.Stop()
			return true
		case <-s.done:
			wait.Stop()
			return false
		case <-wait.C:
		}
	}
}

// closeSilent closes the connection that has been silent for longest, if that is long enough. It says when to look again.
func (s *Sender) closeSilent(now time.Time) time.Duration {
	s.mu.Lock()
	var oldest *shaking
	for c := range s.shaking {
		if !c.heard && !c.left && (oldest == nil || c.since.Before(oldest.since)) {
			oldest = c
		}
	}
	if oldest == nil {
		s.mu.Unlock()
		return silentGrace
	}
	if age := now.Sub(oldest.since); age < silentGrace {
		s.mu.Unlock()
		return silentGrace - age
	}
	oldest.left = true
	s.mu.Unlock()
	_ = oldest.Close()
	return silentGrace
}
