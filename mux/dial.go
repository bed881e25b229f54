package mux

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

const (
	// hedgeAfter is how long an endpoint may take to answer before the next one of the same node is tried beside it: a
	// port that is blocked says nothing.
	hedgeAfter = time.Second
)

// enter waits for the link's turn to dial.
func (k *inLink) enter(begins bool) (pass func(), err error) {
	if !begins {
		return k.recv.gates.again.enter(k.ctx)
	}
	ctx, leave := context.WithCancel(k.ctx)
	defer leave()
	if !k.peer.queue(leave) {
		return nil, errRenewed
	}
	defer k.peer.queue(nil)
	pass, err = k.gate.enter(ctx)
	if err != nil && k.ctx.Err() == nil {
		err = errRenewed
	}
	return pass, err
}

// errRefusedEverywhere says that every endpoint of the peer refused a connection.
var errRefusedEverywhere = errors.New("every endpoint refused the connection")

func isRefusedEverywhere(err error) bool { return errors.Is(err, errRefusedEverywhere) }

// patience is how long a dial may take: with its handshake, from when it has its turn, and the first endpoint alone.
type patience struct{ all, hedge time.Duration }

// patienceWith is that of a link whose plane is one of n. The lanes of a mute link have been without a word for seconds: there is
// little to wait for, but each of its endpoints is asked.
func (k *inLink) patienceWith(n int) patience {
	k.mu.Lock()
	mute := k.mute && len(k.lanes) == 0
	k.mu.Unlock()
	if mute && n > 1 {
		return patience{fallbackMute, fallbackMute / 5}
	}
	return patience{timeoutOf(0, n), hedgeAfter}
}

// dial brings one lane up: it tries the endpoint that is the lane's own, then the others in turn, and does the handshake. A
// later attempt begins one endpoint later.
func (k *inLink) dial(r route, index, attempt int, may patience) (*lane, error) {
	plane := r.transport.Plane()
	if err := k.recv.files.take(k.recv, plane, index); err != nil {
		return nil, err
	}
	l, err := k.dialTimed(r, index, attempt, may)
	if err != nil {
		k.recv.files.give(plane)
		return nil, k.recv.files.explain(k.recv, err)
	}
	return l, nil
}

// dialTimed is dial without the bound of open files.
func (k *inLink) dialTimed(r route, index, attempt int, may patience) (*lane, error) {
	begins := k.peer.link.Load() != k // then nobody else dials for it
	pass, err := k.enter(begins)
	if err != nil {
		return nil, err
	}
	if begins {
		begun := time.Now()
		defer func() { k.silent = time.Since(begun) >= gateFor }()
	}
	defer pass()
	ctx, cancel := context.WithTimeout(k.ctx, may.all)
	defer cancel()
	conn, err := k.connect(ctx, r, index, attempt, may.hedge)
	if err != nil {
		return nil, err
	}
	l, err := k.greet(ctx, conn, index)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s %s: %w", r.transport.Plane(), conn.Info().Remote, err)
	}
	return l, nil
}

// connect opens a connection to the first endpoint that answers. Each has the time of hedge for itself.
func (k *inLink) connect(ctx context.Context, r route, index, attempt int, hedge time.Duration) (transport.Conn, error) {
	type answer struct {
		conn transport.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	n := len(r.endpoints)
	offset := int(k.cfg.ID[0])<<8 | int(k.cfg.ID[1])
	answers := make(chan answer, n)
	begun, pending := 0, 0
	begin := func() {
		address := r.endpoints[(offset+index+attempt+begun)%n]
		begun++
		pending++
		go func() {
			conn, err := r.transport.Dial(ctx, transport.DialRequest{Address: address, Peer: k.peer.id, Lane: index})
			if err != nil {
				err = fmt.Errorf("%s %s: %w", r.transport.Plane(), address, err)
			}
			answers <- answer{conn, err}
		}()
	}
	defer func() { // the losers end with ctx; joined here
		cancel()
		for range pending {
			if a := <-answers; a.conn != nil {
				_ = a.conn.Close()
			}
		}
	}()
	next := time.NewTimer(hedge)
	defer next.Stop()
	refused := 0
	var errs []error
	begin()
	for pending > 0 {
		select {
		case a := <-answers:
			pending--
			if a.err == nil {
				return a.conn, nil
			}
			errs = append(errs, a.err)
			if errors.Is(a.err, syscall.ECONNREFUSED) {
				refused++
			}
			if transport.Denied(a.err) || ctx.Err() != nil {
				return nil, errors.Join(errs...)
			}
		case <-next.C:
		}
		if begun < n {
			begin()
			next.Reset(hedge)
		}
	}
	if refused == n {
		errs = append(errs, errRefusedEverywhere)
	}
	return nil, errors.Join(errs...)
}

// greet does the handshake of a dialled lane.
func (k *inLink) greet(ctx context.Context, conn transport.Conn, index int) (*lane, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	serial := k.recv.serial.Add(1)
	own := wire.HelloBody{Lowest: wire.MinVersion, Highest: wire.MaxVersion, Node: k.cfg.ID, Link: k.id, Lane: uint16(index),
		Serial: serial, OwnSecret: k.ownSecret, PeerSecret: k.peerSecret}
	if _, err := conn.Write(wire.AppendHello(nil, &own)); err != nil {
		stop()
		return nil, fmt.Errorf("mux: send HELLO: %w", err)
	}
	hello, err := readHello(conn)
	if err != nil {
		stop()
		return nil, errors.Join(err, ctx.Err())
	}
	if _, err := wire.MeetVersion(hello.Lowest, hello.Highest); err != nil {
		stop()
		return nil, err
	}
	if transport.NodeID(hello.Node) != k.peer.id {
		stop()
		return nil, &transport.IdentityError{Address: conn.Info().Remote.String(), Want: k.peer.id, Got: hello.Node}
	}
	if hello.PeerSecret != k.ownSecret || hello.Link != k.id || hello.Serial != serial {
		stop()
		return nil, &wire.Error{Kind: wire.Hello, Reason: "answers another HELLO"}
	}
	if !stop() {
		return nil, ctx.Err()
	}
	k.mu.Lock()
	if k.peerSecret == ([16]byte{}) {
		k.peerSecret = hello.OwnSecret
		k.maxStreams = int(min(hello.MaxStreams, wire.MaxIndex))
	}
	k.mu.Unlock()
	l := newLane(&k.recv.node, conn, index, serial)
	l.start()
	return l, nil
}

// evidence says why a failed dial means that the link is lost, "" while it may come back: no lane is up, and another node
// answers, or the peer does not know the link. That nobody listens on any port of a plane says so only together with the
// other planes.
func (k *inLink) evidence(err error) string {
	if k.up() {
		return ""
	}
	var identity *transport.IdentityError
	var away *goAwayError
	switch {
	case errors.As(err, &identity):
		return identity.Error()
	case errors.As(err, &away) && (away.code == wire.AwayUnknownLink || away.code == wire.AwayClosing):
		k.forgotten.Store(away.code == wire.AwayUnknownLink)
		return away.Error()
	}
	return ""
}
