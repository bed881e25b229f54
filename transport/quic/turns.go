package quic

import (
	"context"
	"sync"
)

// maxHandshakes is how many dials of a Transport to one address are in their handshake at once. quic-go's timers have
// no jitter: what begins in one moment retransmits in one moment, two datagrams each, which the kernel counts as 2 to 4
// KiB. When they are more than the endpoint's receive buffer holds, the same ones are lost each time, and their dials
// stall until they time out while those before them took milliseconds. Eight fit into the smallest buffer that makes
// sense, and keep a processor of the endpoint busy.
const maxHandshakes = 8

// turns hands out the places of handshakes, by address: a host that does not answer holds up nobody but those who dial
// it.
type turns struct {
	mu sync.Mutex
	at map[string]*places
}

type places struct {
	taken chan struct{} // holds a token for each handshake that runs
	users int           // who has a place or waits for one
}

// take waits for a place. The caller calls done when its handshake is over.
func (t *turns) take(ctx context.Context, address string) (done func(), err error) {
	t.mu.Lock()
	p := t.at[address]
	if p == nil {
		if t.at == nil {
			t.at = make(map[string]*places)
		}
		p = &places{taken: make(chan struct{}, maxHandshakes)}
		t.at[address] = p
	}
	p.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		if p.users--; p.users == 0 {
			delete(t.at, address)
		}
		t.mu.Unlock()
	}
	select {
	case p.taken <- struct{}{}:
		return func() { <-p.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
