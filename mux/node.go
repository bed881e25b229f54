package mux

import (
	"log/slog"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
)

// node is what a WorkerNode and a FrontendNode share.
type node struct {
	cfg    Config
	epoch  time.Time
	log    *slog.Logger
	stats  counters
	pipes  pipe.Stats
	budget *pipe.Budget   // windows that were given or accepted, and logs
	wg     sync.WaitGroup // the ticker
	done   chan struct{}  // closed by Close
}

func (n *node) init(cfg Config, bound int64) {
	n.cfg, n.epoch, n.log, n.done = cfg, time.Now(), cfg.Logger, make(chan struct{})
	n.budget = pipe.NewBudget(bound)
	n.stats.drops.names = dropReasons
}

// pipeConfig is what the node's lanes share.
func (n *node) pipeConfig(fromWorker bool) pipe.Config {
	return pipe.Config{
		FromWorker: fromWorker, LogLimit: n.cfg.Log, Gap: n.cfg.GapMax, NoUrgent: n.cfg.NoUrgent,
		NoInline: n.cfg.NoInlineWrite, Now: n.now, Budget: n.budget, Stats: &n.pipes,
	}
}

// now is monotonic time in nanoseconds since the node began, at least 1, so that 0 can mean "never".
func (n *node) now() int64 { return int64(time.Since(n.epoch)) + 1 }

// tickEvery is the period of the node's one ticker, which is all the clock that lanes and streams have.
const tickEvery = 50 * time.Millisecond

// runTicker calls tick until the node closes, with the time and the time of the tick before. late is by how much the
// tick came too late, if that is over a second: a process that was stopped must not take its own silence for its
// peers', so deadlines move by it.
func (n *node) runTicker(tick func(now, last int64, late time.Duration)) {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	last := n.now()
	for {
		select {
		case <-n.done:
			return
		case <-t.C:
		}
		now := n.now()
		late := time.Duration(now-last) - tickEvery
		if late < time.Second {
			late = 0
		}
		tick(now, last, late)
		last = now
	}
}

// forever is a span that nothing outlives: longer ones would overflow when a time is added to them.
const forever = 100 * 365 * 24 * time.Hour

// after is the node time that is d after now, 0 for none.
func after(now int64, d time.Duration) int64 {
	if d <= 0 || d >= forever {
		return 0
	}
	return now + int64(d)
}

// later moves a node time that is not 0.
func later(at int64, by time.Duration) int64 {
	if at == 0 {
		return 0
	}
	return at + int64(by)
}

// effects collects what must be done once all locks are let go: waking and callbacks. Nearly every record has none, and
// then it costs nothing.
type effects []func()

func (fx *effects) add(fn func()) { *fx = append(*fx, fn) }

func (fx effects) run() {
	for _, fn := range fx {
		fn()
	}
}

// signal wakes whoever waits on a channel of capacity 1, or will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
