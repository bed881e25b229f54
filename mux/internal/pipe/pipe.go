package pipe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// Config has what the pipes of a node share. It is not checked: who makes it has.
type Config struct {
	// FromWorker says that the peer is a worker, which decides what kinds of records it may send.
	FromWorker bool
	// LogLimit is how many bytes are kept for sending again: 256 KiB to 64 MiB.
	LogLimit int
	// Gap is the longest that bulk waits so that writes merge; 0 = never.
	Gap time.Duration
	// NoUrgent has everything wait in one place, NoInline has the writer do every write.
	NoUrgent, NoInline bool
	// Now is the node's monotonic time in nanoseconds, above 0.
	Now    func() int64
	Budget *Budget
	Stats  *Stats
}

// Handler is the layer above. It is called by the pipe's goroutines with no lock held, but for Skips.
type Handler interface {
	// Record takes one counted record that the peer sent; its header was checked. body is valid during the call. A
	// *wire.Error is the peer's fault and ends the link.
	Record(h wire.Header, body []byte) error
	// BatchDone is called once after each read, when all its whole records were handled.
	BatchDone()
	// Sealed says that an END of the slot will reach the peer, whatever connections do.
	Sealed(s wire.Slot)
	// Skips says that an unsent record of the slot is wanted no more. The pipe's lock is held: it takes none.
	Skips(s wire.Slot) bool
}

// Binder is a Handler that wants to know its pipe: New calls Bind.
type Binder interface{ Bind(*Pipe) }

// Warmer is a Handler that looks at what a read has brought before the first record of it is handled. b may end
// within a record, and was not checked.
type Warmer interface{ Warm(b []byte) }

// Keeper is who gives the pipe its connections. It is called with no lock held and must not wait.
type Keeper interface {
	// Draining says that the peer takes no new streams.
	Draining()
	// Down says that the connection is of no more use, once for each, unless Stop came first. The keeper calls Stop,
	// from a goroutine of its own.
	Down(*DownError)
}

// Pipe is one end of a lane. Make it with New; it has no connection until Start.
type Pipe struct {
	cfg     Config
	handler Handler
	warmer  Warmer // handler, nil if it is none
	keeper  Keeper

	mu sync.Mutex
	// What a record touches.
	places [2]place
	epoch  uint32 // steps when a gather has emptied bulk
	sendLog
	// flushed: a Flush came since the last gather, or that one left something. The writer gathers only then, so it
	// never cuts half a pass.
	flushed bool
	hurry   bool // somebody waits for room that what is unsent makes
	skipDue bool
	// writing: somebody owns batch and the connection's write side. inline: that is who called Flush. rest: what such a
	// caller could not place is the writer's.
	writing, inline, rest bool
	idle                  sync.Cond // inline has become false
	batch                 batch
	ended                 []wire.Slot // of the batch, for Sealed
	owed                  [2]list
	tat                   int64 // theoretical arrival time of the gap rule, in node time
	run                   *run  // nil: no connection
	fullSince             int64 // node time since when the log is full and something waits; 0 = it is not
	control

	received atomic.Uint64 // of the peer's string, whole records that were handled
	Traffic
}

// New makes a pipe.
func New(cfg Config, h Handler, k Keeper) *Pipe {
	p := &Pipe{cfg: cfg, handler: h, keeper: k}
	p.idle.L = &p.mu
	p.warmer, _ = h.(Warmer)
	if b, ok := h.(Binder); ok {
		b.Bind(p)
	}
	return p
}

// Lock and Unlock guard what waits to be sent. Streams that stay on the lane keep their sending state under it.
func (p *Pipe) Lock()   { p.mu.Lock() }
func (p *Pipe) Unlock() { p.mu.Unlock() }

// Epoch steps whenever a gather has emptied bulk: nothing that was appended in an earlier one is unsent. The lock is
// held.
func (p *Pipe) Epoch() uint32 { return p.epoch }

// Unsent is how many bytes wait to be sent. The lock is held.
func (p *Pipe) Unsent() int { return p.unsent() }

// Hurry has the next Flush not wait for the gap: whoever filled a window cannot add to what waits. The lock is held.
func (p *Pipe) Hurry() { p.hurry = !p.cfg.NoUrgent }

// Skip has the next gather ask about every unsent record whether somebody still wants it. The lock is held.
func (p *Pipe) Skip() { p.skipDue = true }

// SkipNow does it at once: there may be no next gather. The lock is held.
func (p *Pipe) SkipNow() {
	p.skipDue = false
	p.skip(&p.places[Bulk])
	p.skip(&p.places[Urgent])
}

// Received is how many bytes of the peer's string were handled.
func (p *Pipe) Received() uint64 { return p.received.Load() }

// Settled says whether nothing is unsent, owed or unacknowledged.
func (p *Pipe) Settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.writing && !p.waiting() && p.sealed == p.acked // an owner that emits just now waits nowhere
}

// Discard forgets everything that was to be sent: the link has ended. The pipe has no connection and gets none any
// more.
func (p *Pipe) Discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acknowledge(p.sealed)
	p.cursor, p.fullSince = p.sealed, 0
	for i := range p.places {
		q := &p.places[i]
		for q.unsent.len() > 0 {
			p.drop(q.unsent.pop().c)
		}
		if q.open != nil {
			p.drop(q.open)
		}
		*q = place{}
		p.owed[i].clear()
	}
}
