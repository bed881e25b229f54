package accept

import (
	"fmt"
	"slices"
	"time"
)

// Tick is the clock of all links, called by the node's ticker with the time, that of the tick before, and by how much
// this one came too late: deadlines move by it.
func (n *Links) Tick(now, last int64, late time.Duration) {
	// Once a second is enough for what counts in seconds.
	second := now/int64(time.Second) != last/int64(time.Second)
	for _, k := range n.Links() {
		switch {
		case k.streams.Open() == 0:
			k.busy = 0
		case k.busy == 0:
			k.busy = now
		}
		if late > 0 {
			k.later(late)
		}
		for _, l := range k.lanes {
			l.pipe.Tick(now, late, k.busy)
			if second {
				l.pipe.FlushForgotten()
			}
		}
		if second {
			k.expire(now)
		}
	}
}

// later moves the begin of holds.
func (k *Link) later(late time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.lanes {
		if down := l.down.Load(); down != 0 {
			l.down.Store(down + int64(late))
			l.touch.Add(int64(late))
			l.lost += int64(late)
		}
	}
}

// since is when the lane's hold began. The lock is held, and the lane has no connection.
func (l *Lane) since() int64 { return max(l.down.Load(), l.touch.Load()) }

// over says whether the lane's hold is over, and nobody takes it over just now. The lock is held.
func (l *Lane) over(now int64) bool {
	return !l.Up() && len(l.turn) == 0 && time.Duration(now-l.since()) >= l.link.hold
}

// over says whether all lanes are past their hold. The lock is held.
func (k *Link) over(now int64) bool {
	return !slices.ContainsFunc(k.lanes, func(l *Lane) bool { return !l.over(now) })
}

// expire ends the link if the hold of all its lanes is over, else it tells of those whose hold is.
func (k *Link) expire(now int64) {
	k.mu.Lock()
	all, hold := k.over(now), k.hold
	var lost []*Lane
	for _, l := range k.lanes {
		if !all && l.lost != l.since() && l.over(now) {
			lost = append(lost, l)
		}
	}
	k.mu.Unlock()
	if all {
		k.links.spawn(func() {
			k.mu.Lock()
			ends := !k.gone && k.over(now)
			k.gone = k.gone || ends
			k.mu.Unlock()
			if ends {
				k.end(ending{why: absent(hold)})
			}
		})
	}
	for _, l := range lost {
		k.links.spawn(func() { l.tell(now, absent(hold)) })
	}
}

func absent(hold time.Duration) string {
	return fmt.Sprintf("no connection to the frontend for %v", hold)
}

// tell tells of a lane's loss, in its turn: not if a connection or a stream has come meanwhile, and never after Lost.
func (l *Lane) tell(now int64, why string) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.link.mu.Lock()
	since := l.since()
	lost := !l.link.gone && !l.Up() && l.lost != since && time.Duration(now-since) >= l.link.hold
	if lost {
		l.lost = since
	}
	l.link.mu.Unlock()
	if lost {
		l.link.streams.LaneLost(l.index, why)
	}
}
