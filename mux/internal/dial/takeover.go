package dial

import (
	"context"
	"errors"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// keep is the life of a lane: when its connection has died the keeper makes another one, and while it lives the keeper
// moves the lane where it is asked to. It alone stops and starts the pipe.
func (l *Lane) keep() {
	defer l.leave()
	for l.link.ctx.Err() == nil {
		if !l.Up() {
			l.redial()
			continue
		}
		select {
		case <-l.news:
		case m := <-l.moves:
			m.done <- l.moveTo(m.to)
		case <-l.link.ctx.Done():
		}
	}
}

// leave ends the lane with its link, and says so where there is something to say.
func (l *Lane) leave() {
	if e := l.link.end(); l.Up() && e.away != wire.AwayDraining {
		l.pipe.Away(e.away, e.why)
		t := time.NewTimer(goodbyeTimeout)
		defer t.Stop()
		for waiting := true; waiting && l.Up(); { // until the worker has closed the connection
			select {
			case <-l.news:
			case <-t.C:
				waiting = false
			}
		}
	}
	if l.Up() {
		l.link.recv.cfg.Pipe.Stats.Deaths.Add(pipe.DownClosed)
	}
	l.stop()
	if at := l.downAt.Load(); at != 0 && l.Plane() != "" {
		l.link.recv.stats.wasDown(time.Duration(l.link.recv.cfg.Now() - at))
	}
}

// redial gives the lane another connection, or returns when the link has ended.
func (l *Lane) redial() {
	k := l.link
	received := l.stop()
	if k.resume.Load() == 0 && l.Plane() != "" {
		l.expire("the connection has ended, and nothing is resumed")
	}
	for pause(k.ctx, l.pace.delay()) {
		err := l.reconnect(received)
		if err == nil || k.ctx.Err() != nil {
			return
		}
		l.pace.count(false)
		k.peer.note(err)
	}
}

// reconnect tries the planes that both sides have, first the one that the link is on.
func (l *Lane) reconnect(received uint64) error {
	k := l.link
	desc := k.peer.description()
	routes, left := k.order(k.recv.shared(desc))
	if len(routes) == 0 {
		return k.recv.unusable(desc)
	}
	errs, refused := left, true
	for i, r := range routes {
		err := l.dial(k.ctx, r, l.patience(i, len(routes)), func() uint64 { return received })
		if err == nil {
			if len(errs) > 0 {
				k.landed(r.plane(), l.leftAt.Load(), errors.Join(errs...))
			}
			return nil
		}
		errs = append(errs, err)
		if k.recv.files.short(k.recv, err) || k.ctx.Err() != nil {
			return errors.Join(errs...)
		}
		if end := k.verdict(err); end != nil {
			k.lose(*end)
			return err
		}
		refused = refused && (errors.Is(err, errRefusedEverywhere) || errors.Is(err, errUnproven))
	}
	if refused && !k.holds() {
		k.lose(ending{why: errRefusedEverywhere.Error()})
	}
	return errors.Join(errs...)
}

// patience is that for plane i of n. A lane that was mute has been without a word for seconds: there is little to wait
// for, but each endpoint is asked.
func (l *Lane) patience(i, n int) patience {
	if i == 0 && n > 1 && l.mute.Load() {
		return patience{fallbackMute, fallbackMute / 5}
	}
	return patienceFor(i, n)
}

// dial brings up a connection on one plane. stopped is called when the transport's handshake is through, and says how
// much was received over the connections before.
func (l *Lane) dial(ctx context.Context, r route, may patience, stopped func() uint64) error {
	k := l.link
	d := dialling{peer: k.peer, lane: l.index, route: r, may: may}
	return d.dial(ctx, func(ctx context.Context, conn transport.Conn) error {
		if k.proven && !conn.Info().Proven {
			return errUnproven
		}
		own := k.hello(l.index, stopped())
		peer, err := k.exchange(ctx, conn, own)
		if err != nil {
			return err
		}
		err = l.start(conn, own, peer)
		if bad, ok := errors.AsType[*wire.Error](err); ok {
			pipe.Refuse(conn, nil, wire.AwayProtocol, bad.Error())
			k.lose(ending{why: bad.Error(), protocol: true, away: wire.AwayProtocol})
		}
		return err
	})
}

// errUnproven: the plane does not prove who answers.
var errUnproven = errors.New("mux: the link began on a plane that proves the node's identity, and this one does not")

// move asks a keeper to take its lane to another connection.
type move struct {
	to   route
	done chan error // capacity 1
}

// errBusy: the lane has other worries.
var errBusy = errors.New("mux: the lane has no connection now")

// moveTo is a planned takeover: the connection that is there is left when the other one only lacks its HELLOs. Its
// death ends the attempt.
func (l *Lane) moveTo(r route) error {
	ctx, cancel := context.WithCancel(l.link.ctx)
	defer cancel()
	l.mu.Lock()
	l.abort = cancel
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.abort = nil
		l.mu.Unlock()
	}()
	if !l.Up() {
		return errBusy
	}
	err := l.dial(ctx, r, patience{fallbackAfter, hedgeAfter}, l.part)
	l.state.CompareAndSwap(laneMoving, laneDown) // it failed too late: the keeper dials where the lane was
	return err
}

// part leaves the connection on purpose.
func (l *Lane) part() uint64 {
	l.mu.Lock()
	if l.state.CompareAndSwap(laneUp, laneMoving) {
		l.left(byPlan, false)
		l.link.recv.cfg.Pipe.Stats.Deaths.Add(pipe.DownClosed)
	}
	l.mu.Unlock()
	return l.stop()
}

// pause waits, and says whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}

// signal wakes whoever reads from a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
