package frontend

import (
	"context"
	"sync"
	"time"
)

// early keeps a streamed request company until its first record: once a keep-alive interval has passed without one, the
// client gets the status, the header and a comment, and a comment after each further interval, or a proxy that waits
// less long than the engine takes would cut it. What fails after that is an event. A request whose record is in time
// costs no goroutine and no write here.
type early struct {
	x *exchange

	mu   sync.Mutex // held during a write
	over bool
	stop func() bool
}

// begin has due called when a keep-alive is. The ResponseWriter is due's then, until end has returned.
func (e *early) begin(x *exchange) {
	e.x = x
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stop = context.AfterFunc(x.wait.ctx(), e.due)
}

// due runs on a goroutine of its own, which ends with its write; end joins it.
func (e *early) due() {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, now := e.x, time.Now()
	if e.over || !x.wait.again() { // it has a record, or the client has left
		return
	}
	x.eventHeader()
	x.sent = true
	if x.out.keepAlive(now) != nil {
		x.cancel(errUnwritten)
		return
	}
	x.wait.wrote(now)
	e.stop = context.AfterFunc(x.wait.ctx(), e.due)
}

// end gives the ResponseWriter back. It waits for a write that is under way, as long as that may take. Idempotent.
func (e *early) end() {
	if e.x == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.over = true
		e.stop()
	}
}
