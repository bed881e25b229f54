package accept

import (
	"errors"
	"fmt"
	"slices"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// takeOver gives the lane the connection of a HELLO that was admitted, one at a time: all is checked before the one
// that the lane has is stopped, and the peer is answered when that has delivered what it had.
func (l *Lane) takeOver(s *shaking, h *wire.HelloBody) error {
	k, n := l.link, l.link.links
	select {
	case l.turn <- struct{}{}:
	case <-s.ctx.Done():
		return s.why(nil)
	}
	defer func() { <-l.turn }()
	if err := l.mine(h); err != nil {
		return err
	}
	if err := l.pipe.Check(h.Received); err != nil {
		k.accuse(err)
		return refuse(wire.AwayProtocol, "%w", err)
	}
	from := l.down.Load()
	answer := n.hello(h)
	answer.Lanes, answer.OwnSecret, answer.Received = uint16(len(k.lanes)), k.own, l.stop()
	again := l.started(s, h) // before the frontend can know
	_, err := s.Conn.Write(wire.AppendHello(nil, &answer))
	if ok := s.finish(); err != nil || !ok {
		l.stop()
		n.cfg.Pipe.Stats.Deaths.Add(pipe.DownHandshake)
		return s.why(fmt.Errorf("accept: answer HELLO: %w", err))
	}
	if again {
		n.counts.tookOver(from, n.cfg.Now())
	}
	if err := l.pipe.Start(pipe.Session{Conn: s.Conn, PeerReceived: h.Received, PeerLog: h.Log,
		Pings: n.cfg.Pings.Agree(h.Pings), Plane: n.cfg.Pipe.Stats.Plane(s.info.Plane)}); err != nil {
		l.stop() // what the connection before has still brought says otherwise than this HELLO
		k.accuse(err)
		return err
	}
	n.log.Debug("lane up", "link", k.number, "peer", k.peer, "plane", s.info.Plane, "lane", l.index, "serial", h.Serial)
	return nil
}

// mine checks again, in turn, whether the lane is for this connection.
func (l *Lane) mine(h *wire.HelloBody) error {
	l.link.mu.Lock()
	defer l.link.mu.Unlock()
	switch {
	case l.link.gone:
		return unknownLink(h)
	case l.claim != h.Serial:
		return oldSerial(h, l.claim)
	}
	return nil
}

func oldSerial(h *wire.HelloBody, at uint64) error {
	return refuse(wire.AwayLimit, "serial %d of lane %d of link %d, which is at %d", h.Serial, h.Lane, h.Link, at)
}

// started notes a connection. again: it is not the lane's first.
func (l *Lane) started(s *shaking, h *wire.HelloBody) (again bool) {
	l.link.mu.Lock()
	defer l.link.mu.Unlock()
	again = len(l.past) > 0
	if len(l.past) == maxPast {
		l.past = slices.Delete(l.past, 0, 1)
	}
	now := l.link.links.cfg.Now()
	l.past = append(l.past, Connection{s.info.Plane, h.Serial, s.info.Local, s.info.Remote, now, 0})
	l.down.Store(0)
	return again
}

// stop ends the lane's connection, if it has one, and returns how much of the peer's string was handled. The caller has
// the turn; no lock is held.
func (l *Lane) stop() (received uint64) {
	n := l.link.links
	if l.pipe.Up() {
		n.cfg.Pipe.Stats.Deaths.Add(pipe.DownClosed)
	}
	received = l.pipe.Stop()
	l.link.mu.Lock()
	defer l.link.mu.Unlock()
	if l.Up() {
		now := n.cfg.Now()
		l.past[len(l.past)-1].To = now
		l.down.Store(now)
	}
	return received
}

// Draining implements pipe.Keeper. That a frontend takes no new streams concerns the frontend.
func (l *Lane) Draining() {}

// Down implements pipe.Keeper.
func (l *Lane) Down(why *pipe.DownError) { l.link.links.spawn(func() { l.bury(why) }) }

// bury stops a connection that has died, unless another has its place already, and ends the link where the death does.
func (l *Lane) bury(why *pipe.DownError) {
	k := l.link
	k.links.log.Info("lane down", "link", k.number, "peer", k.peer, "lane", l.index, "error", why)
	if e, ok := endOf(why); ok && k.finish() {
		k.end(e)
		return
	}
	l.turn <- struct{}{}
	if !l.pipe.Up() {
		l.stop()
	}
	<-l.turn
}

// endOf says whether a connection's death ends its link.
func endOf(why *pipe.DownError) (ending, bool) {
	var away *pipe.AwayError
	switch {
	case why.Reason == pipe.DownProtocol:
		return ending{why.Err.Error(), true, wire.AwayProtocol}, true
	case !errors.As(why.Err, &away):
	case away.Code == wire.AwayProtocol:
		return ending{why: "the frontend says: " + away.Text, protocol: true}, true
	case away.Code == wire.AwayClosing || away.Code == wire.AwayUnknownLink:
		return ending{why: "the frontend says: " + away.Code.String() + ": " + away.Text}, true
	}
	return ending{}, false
}
