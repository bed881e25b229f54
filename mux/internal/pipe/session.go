package pipe

import (
	"fmt"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// Session is a connection whose HELLOs are through, and what they have agreed on.
type Session struct {
	Conn transport.Conn
	// PeerReceived is what the peer's HELLO says of this side's string.
	PeerReceived uint64
	// PeerLog is the limit of the peer's log.
	PeerLog int
	// Pings are the agreed rules; SendPings says that this side sends them.
	Pings     wire.Pings
	SendPings bool
	Plane     *PlaneStats
}

// run is one connection in its time.
type run struct {
	Session
	try    transport.TryWriter // nil: only the writer writes
	wake   chan struct{}       // capacity 1: the writer has something to look at
	done   chan struct{}       // closed at death
	timer  *time.Timer         // ends a wait for the gap
	armed  bool                // it runs; the pipe's lock guards it
	dead   bool                // the pipe's lock guards it
	ackAt  uint64              // how much may be received before it is named
	worker sync.WaitGroup      // reader, writer, and who tells the keeper that it is down
	liveness
}

func (r *run) wakeWriter() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Check says whether a peer's HELLO may say that it has received so much of this side's string.
func (p *Pipe) Check(received uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if received < p.acked || received > p.sealed {
		return &wire.Error{Kind: wire.Hello,
			Reason: fmt.Sprintf("says %d bytes received, %d were acknowledged and %d sent",
				received, p.acked, p.sealed)}
	}
	if !p.begins(received) {
		return &wire.Error{Kind: wire.Hello, Reason: fmt.Sprintf("says %d bytes received, where no record ends",
			received)}
	}
	return nil
}

// Start goes on over a connection from where the peer is. The pipe has none: it is new, or Stop has returned. It
// fails as Check does.
func (p *Pipe) Start(s Session) error {
	if err := p.Check(s.PeerReceived); err != nil {
		return err
	}
	r := &run{Session: s, wake: make(chan struct{}, 1), done: make(chan struct{}), timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	r.ackAt = uint64(min(64<<10, max(s.PeerLog, wire.MinLog)/4))
	if !p.cfg.NoInline {
		r.try, _ = s.Conn.(transport.TryWriter)
	}
	now := p.cfg.Now()
	r.heard.Store(now)
	r.pinged.Store(now)
	p.ponged.Store(now)
	p.mu.Lock()
	p.acknowledge(s.PeerReceived)
	p.cursor = s.PeerReceived
	p.run = r
	p.named = p.received.Load() // HELLO has said it
	p.ping, p.pong, p.ack, p.ackNow, p.away = false, false, false, false, nil
	if p.drains != "" {
		p.away = wire.AppendGoAway(nil, wire.AwayDraining, p.drains)
	}
	p.peerDrains = false
	p.flushed = p.waiting() || p.ready() // else a Put that nobody flushes would look as if it was
	if p.ready() {
		r.wakeWriter()
	}
	r.worker.Go(func() { p.readLoop(r) })
	r.worker.Go(func() { p.writeLoop(r) })
	p.mu.Unlock() // so late that whoever stops it finds both
	return nil
}

// Stop closes the connection, joins its reader (with what it is delivering), its writer and whoever writes inline, and
// returns how much of the peer's string was handled. It is not called by a reader, a writer or a sink. Idempotent.
func (p *Pipe) Stop() (received uint64) {
	p.mu.Lock()
	r := p.run
	if r == nil {
		p.mu.Unlock()
		return p.received.Load()
	}
	first := !r.dead
	r.dead = true
	p.mu.Unlock()
	if first {
		close(r.done)
	}
	_ = r.Conn.Close()
	r.worker.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.inline && p.run == r {
		p.idle.Wait()
	}
	if p.run == r { // no other Stop came first
		p.writing, p.rest = false, false
		p.release()
		p.run = nil
	}
	return p.received.Load()
}

// Up says whether there is a connection that is not known to be dead.
func (p *Pipe) Up() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run != nil && !p.run.dead
}

// die ends a connection, once; the first reason counts. It never waits.
func (p *Pipe) die(r *run, why *DownError) {
	p.mu.Lock()
	if r.dead {
		p.mu.Unlock()
		return
	}
	r.dead = true
	r.worker.Add(1) // Stop waits: no word of a connection that has been replaced
	defer r.worker.Done()
	p.mu.Unlock()
	close(r.done)
	_ = r.Conn.Close()
	p.cfg.Stats.Deaths.Add(why.Reason)
	p.keeper.Down(why)
}

// Reasons why a connection has ended.
const (
	DownPeer     = "peer"     // the peer closed it or it broke
	DownSilent   = "silent"   // nothing arrived for too long
	DownProtocol = "protocol" // this side saw a malformed or illegal record
	DownRefused  = "refused"  // the peer sent GOAWAY with a reason
)

// DownError says why a connection has ended.
type DownError struct {
	Reason string
	Err    error
}

func (e *DownError) Error() string {
	return "the connection has ended (" + e.Reason + "): " + e.Err.Error()
}
func (e *DownError) Unwrap() error { return e.Err }

// AwayError is a GOAWAY that ended a connection.
type AwayError struct {
	Code wire.GoAwayCode
	Text string
}

func (e *AwayError) Error() string { return fmt.Sprintf("the peer refused: %s: %s", e.Code, e.Text) }
