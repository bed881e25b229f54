package pipe

import (
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// liveness is how a silent peer is found.
type liveness struct {
	heard   atomic.Int64 // node time of the last byte
	pinged  atomic.Int64 // node time of the last PING
	waiting atomic.Bool  // the reader is in Read, so silence is the peer's
	busy    int64        // node time at which the ticker last found the reader busy
}

// Tick is the pipe's clock, called by the node's ticker. late is by how much the tick came too late: a process that
// was stopped must not take its own silence for its peers'. busy is since when the lane's link has open streams, 0 =
// it has none.
func (p *Pipe) Tick(now int64, late time.Duration, busy int64) {
	p.mu.Lock()
	r := p.run
	if r == nil || r.dead {
		p.mu.Unlock()
		return
	}
	if p.peerDrains && p.received.Load() > p.named {
		p.ack, p.ackNow = true, true
	}
	every, limit, from := r.Pings.Idle, r.Pings.IdleSilence, r.heard.Load()
	if busy != 0 {
		every, limit, from = r.Pings.Active, r.Pings.ActiveSilence, max(from, busy)
	}
	if late > 0 || !r.waiting.Load() {
		r.busy = now // the reader has a slow application, and slow is not dead
	}
	from = max(from, r.busy)
	if r.SendPings && now-r.pinged.Load() >= int64(every) {
		r.pinged.Store(now)
		p.ping = true
	}
	if p.due() {
		p.flush(ByTick)
	} else {
		p.mu.Unlock()
	}
	if now-from >= int64(limit) {
		p.die(r, &DownError{DownSilent, silentError(limit)})
	}
}

type silentError time.Duration

func (e silentError) Error() string { return "nothing arrived for " + time.Duration(e).String() }

// Ping asks the peer for a sign of life now. The answer is Ponged.
func (p *Pipe) Ping() {
	p.mu.Lock()
	if p.run == nil {
		p.mu.Unlock()
		return
	}
	p.run.pinged.Store(p.cfg.Now())
	p.ping = true
	p.flush(ByUrgent)
}

// Heard is the node time of the last byte from the peer, 0 without a connection.
func (p *Pipe) Heard() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return 0
	}
	return p.run.heard.Load()
}

// Drain says GOAWAY(draining) on this connection and first on all that follow.
func (p *Pipe) Drain(text string) {
	p.mu.Lock()
	p.drains = text
	p.away = wire.AppendGoAway(nil, wire.AwayDraining, text)
	p.flush(ByUrgent)
}

// Away says GOAWAY, after which the peer closes the connection.
func (p *Pipe) Away(code wire.GoAwayCode, text string) {
	p.mu.Lock()
	p.away = wire.AppendGoAway(nil, code, text)
	p.flush(ByUrgent)
}
