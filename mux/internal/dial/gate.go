package dial

import (
	fifo "container/list"
	"context"
	"sync"
	"time"
)

const (
	// maxDials is how many places each gate has, and gateFor how long a dial keeps one at most. A frontend that starts
	// beside a thousand workers makes their handshakes in turns, so that none takes so long that it looks dead.
	maxDials = 32
	gateFor  = 500 * time.Millisecond
)

// gates are the places of a FrontendNode's dials in their first gateFor, by what a dial is for. A host that does not
// answer keeps its place for all of gateFor, so 64 of them a second pass a gate. It does so once in the gate of the
// nodes that are new; then its dials wait among those of other such hosts. They hold up no node that has just come, has
// another address, or was there until now, for longer than about gateFor, and no open stream at all.
type gates struct {
	begin *gate // of a link to a node of which nothing bad is known
	slow  *gate // of a link to a node whose last dial came to nothing within gateFor
	again *gate // of a lane for a link that is there
}

func newGates() gates { return gates{newGate(), newGate(), newGate()} }

// gate is a number of places. Those that are given back go by turns to who has waited longest and to who has come last:
// a live node that comes after many that do not answer is not behind all of them, and nobody waits for ever.
type gate struct {
	mu     sync.Mutex
	free   int
	queue  fifo.List // of chan struct{}, closed when its owner has a place
	newest bool      // whose turn it is
}

func newGate() *gate { return &gate{free: maxDials} }

// enter waits for a place. The caller calls pass when its dial is over.
func (g *gate) enter(ctx context.Context) (pass func(), err error) {
	if err := g.wait(ctx); err != nil {
		return nil, err
	}
	t := time.AfterFunc(gateFor, g.leave)
	return func() {
		if t.Stop() {
			g.leave()
		}
	}, nil
}

func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	e := g.queue.PushBack(turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	select {
	case <-turn: // both at once
		g.mu.Unlock()
		g.leave()
	default:
		g.queue.Remove(e)
		g.mu.Unlock()
	}
	return ctx.Err()
}

// leave gives a place back.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.queue.Front()
	if g.newest {
		e = g.queue.Back()
	}
	if e == nil {
		g.free++
		return
	}
	g.newest = !g.newest
	close(g.queue.Remove(e).(chan struct{}))
}
