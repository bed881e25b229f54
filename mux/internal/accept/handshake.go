package accept

import (
	"errors"
	"fmt"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Serve accepts connections from a listener until the Links or the listener is closed. It returns at once; Close closes
// the listener.
func (n *Links) Serve(ln transport.Listener) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return ErrClosed
	}
	n.listeners = append(n.listeners, ln)
	n.wg.Go(func() { n.acceptLoop(ln) })
	return nil
}

// ErrClosed is what Serve returns after Close.
var ErrClosed = errors.New("accept: closed")

func (n *Links) acceptLoop(ln transport.Listener) {
	for {
		conn, err := ln.Accept(n.ctx)
		if err != nil {
			if !errors.Is(err, transport.ErrClosed) && n.ctx.Err() == nil {
				n.log.Error("accepting connections has ended", "error", err)
			}
			return
		}
		s := n.newShaking(conn)
		if !n.places.take(s) {
			n.refused(s, s.why(nil))
			continue
		}
		n.wg.Go(func() { n.serve(s) })
	}
}

// serve does a handshake to its end. What has become of the connection then is its lane's.
func (n *Links) serve(s *shaking) {
	err := n.welcome(s)
	var r *refusal
	if errors.As(err, &r) {
		n.counts.refuse(r.code)
		pipe.Refuse(s, r.hello, r.code, r.err.Error())
	}
	n.places.leave(s)
	if err != nil {
		n.refused(s, err)
	}
}

func (n *Links) refused(s *shaking, err error) {
	s.finish()
	_ = s.Close()
	n.log.Warn("a connection was refused", "plane", s.info.Plane, "remote", s.info.Remote, "error", err)
}

// refusal is why a connection is not taken, which the peer is told.
type refusal struct {
	code  wire.GoAwayCode
	hello *wire.HelloBody // goes before it, nil: none
	err   error
}

func (r *refusal) Error() string { return "accept: " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(code wire.GoAwayCode, format string, a ...any) error {
	return &refusal{code: code, err: fmt.Errorf(format, a...)}
}

// welcome reads and checks a HELLO and gives the connection to its lane.
func (n *Links) welcome(s *shaking) error {
	h, err := pipe.ReadHello(s)
	if err != nil {
		var bad *wire.Error
		if errors.As(err, &bad) {
			return refuse(wire.AwayProtocol, "%w", err)
		}
		return s.why(err)
	}
	if _, err := wire.MeetVersion(h.Lowest, h.Highest); err != nil {
		own := n.hello(h)
		return &refusal{code: wire.AwayVersion, hello: &own, err: err}
	}
	if peer := transport.NodeID(h.Node); s.info.Proven && s.info.Peer != peer {
		return refuse(wire.AwayIdentity, "HELLO names node %s, the plane proves %s", peer, s.info.Peer)
	}
	k, fresh, err := n.find(h, s)
	if err != nil {
		return err
	}
	if fresh {
		n.begin(k)
	}
	return k.lanes[h.Lane].takeOver(s, h)
}

// hello is the answer to a HELLO, without what is the link's.
func (n *Links) hello(h *wire.HelloBody) wire.HelloBody {
	return wire.HelloBody{
		Lowest: wire.MinVersion, Highest: wire.MaxVersion, Node: n.cfg.ID, Link: h.Link, Lane: h.Lane, Lanes: h.Lanes,
		MaxStreams: uint32(n.cfg.MaxStreams), Serial: h.Serial, Log: n.cfg.Log, Resume: n.cfg.Resume,
		Pings: n.cfg.Pings, PeerSecret: h.OwnSecret,
	}
}
