package accept

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// goodbye is how long a peer may take to read why its link ends.
const goodbye = 250 * time.Millisecond

// ending is why a link ends.
type ending struct {
	why      string
	protocol bool
	say      wire.GoAwayCode // to the frontend, on every connection; AwayDraining: nothing
}

// finish marks the link as gone, once. Who gets true ends it.
func (k *Link) finish() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.gone
	k.gone = true
	return !was
}

// end ends a link that the caller has finished, from a goroutine of its own.
func (k *Link) end(e ending) {
	for _, l := range k.lanes {
		l.turn <- struct{}{}
		defer func() { <-l.turn }()
	}
	if e.say != wire.AwayDraining {
		k.farewell(e)
	}
	for _, l := range k.lanes {
		l.stop()
	}
	k.streams.Lost(e.why, e.protocol)
	for _, l := range k.lanes {
		l.pipe.Discard()
	}
	k.links.forget(k)
	k.links.log.Info("a link has ended", "link", k.number, "peer", k.peer, "why", e.why)
}

// farewell says why the link ends on all its connections, and gives the peer a moment to read it and close them.
func (k *Link) farewell(e ending) {
	for _, l := range k.lanes {
		l.pipe.Away(e.say, e.why)
	}
	for end := time.Now().Add(goodbye); time.Now().Before(end); time.Sleep(goodbye / 50) {
		if !slices.ContainsFunc(k.lanes, func(l *Lane) bool { return l.pipe.Up() }) {
			return
		}
	}
}

// accuse ends the link for what a HELLO with its secrets says.
func (k *Link) accuse(err error) {
	k.links.spawn(func() {
		if k.finish() {
			k.end(ending{err.Error(), true, wire.AwayProtocol})
		}
	})
}

// Drain says GOAWAY(draining) on every connection, and first on all that come. text is why.
func (n *Links) Drain(text string) {
	n.mu.Lock()
	n.draining = text
	n.mu.Unlock()
	for _, p := range n.Pipes() {
		p.Drain(text)
	}
}

// Close ends all links, closes the listeners and joins every goroutine. text is what frontends are told. Idempotent;
// not to be called from a callback.
func (n *Links) Close(text string) error {
	n.mu.Lock()
	if n.closing {
		n.mu.Unlock()
		<-n.closed
		return nil
	}
	n.closing = true
	listeners := n.listeners
	var ends sync.WaitGroup
	for _, k := range n.register.links {
		ends.Go(func() {
			if k.finish() {
				k.end(ending{text, false, wire.AwayClosing})
			}
		})
	}
	n.mu.Unlock()
	n.cancel()
	ends.Wait()
	var errs []error
	for _, ln := range listeners {
		errs = append(errs, ln.Close())
	}
	n.wg.Wait()
	close(n.closed)
	return errors.Join(errs...)
}
