package dial

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

const (
	// preferAgain is how long a link stays on a plane that was not the first choice before the better ones are tried
	// again, and preferMost how long at most, where a better plane has died soon after the return to it, again and
	// again. Up to a twelfth is added by chance, so that a thousand links do not try at once.
	preferAgain = time.Minute
	preferMost  = time.Hour
)

// planes is on which plane a link is, and why. The link's lock guards it.
type planes struct {
	plane    string        // where a lane came up last
	fellBack error         // why that is not the first one that both sides have, nil when it is
	every    time.Duration // how long it stays there
	tryAt    int64         // node time at which the better ones are tried again
	returned int64         // node time of the last return to a better one, 0 = none
}

// order is the routes in the order in which a lane is dialled: first the plane that the link is on. left says that it
// is no more among them.
func (k *Link) order(routes []route) (ordered []route, left []error) {
	k.mu.Lock()
	plane := k.plane
	k.mu.Unlock()
	at := rank(routes, plane)
	if at < 0 {
		return routes, []error{&leftPlaneError{plane}}
	}
	return append([]route{routes[at]}, slices.Concat(routes[:at], routes[at+1:])...), nil
}

// leftPlaneError says that a node's record does not list the plane of its link any more.
type leftPlaneError struct{ plane string }

func (e *leftPlaneError) Error() string { return "the peer has left plane " + e.plane }

// landed takes note that a lane whose connection died is up again, on some plane, and of why not on the one before.
func (k *Link) landed(plane string, died int64, why error) {
	routes := k.peer.routes()
	k.mu.Lock()
	from := k.plane
	if from == plane {
		k.mu.Unlock()
		return
	}
	k.plane = plane
	was, is := rank(routes, from), rank(routes, plane)
	if is == 0 {
		k.fellBack = nil
	}
	if was >= 0 && is > was {
		soon := k.returned != 0 && died-k.returned < int64(preferAgain)
		if k.every *= 2; !soon {
			k.every = preferAgain
		}
		k.every = min(k.every, preferMost)
	}
	k.mu.Unlock()
	if was >= 0 && is > was {
		k.again()
		k.fellBackFrom(from, plane, why)
	} else {
		k.recv.log.Info("a link goes on on another plane", "peer", k.peer.id, "from", from, "to", plane,
			"error", oneLine(why))
	}
}

// fellBackFrom counts and logs that the link is on another plane than it should be.
func (k *Link) fellBackFrom(from, to string, why error) {
	k.setFallback(why)
	k.recv.stats.fellBack(from, to, fallbackReason(why))
	k.recv.log.Warn("a link fell back to another plane; the better one is tried again", "peer", k.peer.id, "from", from,
		"to", to, "error", oneLine(why))
}

func (k *Link) setFallback(why error) {
	k.mu.Lock()
	k.fellBack = why
	k.mu.Unlock()
}

// fallbackReason puts the failure of a plane into one of a few words.
func fallbackReason(err error) string {
	switch {
	case transport.Denied(err):
		return "identity"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "other"
}

// again has the better planes tried in a while.
func (k *Link) again() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tryAt = k.recv.cfg.Now() + int64(k.every+rand.N(k.every/12))
}

func (k *Link) untilAgain() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Duration(k.tryAt - k.recv.cfg.Now())
}

// preferBetter takes the link back to better planes, until it has ended.
func (k *Link) preferBetter() {
	k.again()
	for pause(k.ctx, min(k.untilAgain(), preferAgain)) {
		if k.untilAgain() > 0 {
			continue // a fallback has put it off
		}
		k.again()
		k.improve()
	}
}

// improve takes one lane after the other to a better plane than it is on, as long as such a one connects.
func (k *Link) improve() {
	routes := k.peer.routes()
	for _, l := range k.lanes {
		var err error
		for _, r := range routes[:max(rank(routes, l.Plane()), 0)] {
			if err = k.ask(l, r); err == nil {
				k.returnedTo(r.plane())
				break
			}
		}
		switch {
		case errors.Is(err, errBusy):
			return
		case err != nil:
			k.setFallback(err)
			k.recv.log.Debug("a better plane still does not connect", "peer", k.peer.id, "error", oneLine(err))
			return
		}
	}
	if len(routes) > 0 && rank(routes, k.lanes[0].Plane()) == 0 {
		k.setFallback(nil)
	}
}

// ask has a lane moved by its keeper.
func (k *Link) ask(l *Lane, to route) error {
	m := move{to, make(chan error, 1)}
	select {
	case l.moves <- m:
	default:
		return errBusy
	}
	select {
	case err := <-m.done:
		return err
	case <-k.ctx.Done():
		return errBusy
	}
}

func (k *Link) returnedTo(plane string) {
	k.mu.Lock()
	from := k.plane
	k.plane, k.returned = plane, k.recv.cfg.Now()
	k.mu.Unlock()
	if from != plane {
		k.recv.log.Info("a link is on a better plane again", "peer", k.peer.id, "from", from, "to", plane)
	}
}
