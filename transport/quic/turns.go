package quic

import (
	"context"
	"time"
)

// Handshakes that begin in one moment retransmit in one moment too, since quic-go's timers have no jitter. When the packets of
// all of them are more than the endpoint's receive buffer holds, the same ones are lost each time, and their dials stall until
// they time out while those before them took milliseconds (128 dials to a socket that was granted 32 KiB; a starved process
// and a clamped buffer of 425,984 bytes need more). So dials of a Transport take turns.
const (
	// maxHandshakes is how many dials are in the first turnFor of their handshake at once: about two datagrams each, which the
	// kernel counts as 2 to 4 KiB.
	maxHandshakes = 16
	turnFor       = 25 * time.Millisecond // hosts that do not answer take 640 places a second, so they hold up nobody for long
)

// turns is the places of handshakes that begin.
type turns chan struct{}

// take waits for a place. The caller calls done when its handshake is over.
func (s turns) take(ctx context.Context) (done func(), err error) {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	t := time.AfterFunc(turnFor, func() { <-s })
	return func() {
		if t.Stop() {
			<-s
		}
	}, nil
}
