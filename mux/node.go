package mux

import (
	"log/slog"
	"sync"
	"time"
)

// node is what a Sender and a Receiver share.
type node struct {
	cfg    Config
	epoch  time.Time
	log    *slog.Logger
	stats  counters
	chunks chunkPool
	wg     sync.WaitGroup // accept loops, lanes, dialers, the ticker
	done   chan struct{}  // closed by Close
}

func (n *node) init(cfg Config) {
	n.cfg, n.epoch, n.log, n.done = cfg, time.Now(), cfg.Logger, make(chan struct{})
}

// now is monotonic time in nanoseconds since the node began, at least 1, so that 0 can mean "never".
func (n *node) now() int64 { return int64(time.Since(n.epoch)) + 1 }

// tickEvery is the period of the node's one ticker. It writes owed CONSUMEDs, PINGs and forgotten flushes and looks for
// silent lanes.
const tickEvery = 50 * time.Millisecond

// runTicker calls tick until the node closes, with the time and the time of the tick before. late is by how much the tick came too late beyond a second: a process that
// was stopped must not take its own silence for its peers', so deadlines move by it.
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

// watch is the liveness of one lane: PINGs that are due (where this side pings), and silence. It returns true when the
// lane was found dead. busy is since when the lane's link has open streams on whatever lane, 0 = it has none or that does not
// count here.
func (l *lane) watch(now int64, late time.Duration, pings bool, busy int64) bool {
	cfg := &l.node.cfg
	if late > 0 {
		l.lastRecv.Store(now)
	}
	every, limit := cfg.KeepAlive, cfg.Idle
	from := l.lastRecv.Load()
	if open := l.open.Load() > 0; (open || busy != 0) && cfg.ActivePing > 0 {
		every, limit = cfg.ActivePing, cfg.activeDead()
		if open && busy == 0 {
			busy = l.since.Load()
		}
		from = max(from, busy) // counted from the first open stream
	}
	if pings && now-l.pinged.Load() >= int64(every) {
		l.sendPing()
	}
	// Only a reader that waits has a silent peer; one that is busy has a slow application, and slow is not dead.
	if l.waiting.Load() && now-from >= int64(limit) {
		l.die(deathSilent, errSilent{limit})
		return true
	}
	return false
}

// opened and closed count the streams that are placed on the lane.
func (l *lane) opened() {
	if l.open.Add(1) == 1 {
		l.since.Store(l.node.now())
	}
}

func (l *lane) closed() { l.open.Add(-1) }

type errSilent struct{ limit time.Duration }

func (e errSilent) Error() string { return "nothing arrived for " + e.limit.String() }
