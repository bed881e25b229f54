package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/report"
)

const haveLoops = true

// loopClient serves all slots from a few loops, so that a connection costs half a kilobyte and an event no wake of a goroutine. The loops get their events
// by epoll or io_uring.
type loopClient struct {
	e     *engine
	name  string
	loops []*loop
}

// poller tells a loop what the kernel has for its connections. All but close is called by the loop's own thread.
type poller interface {
	// begin is called first.
	begin() error
	// dial watches a slot whose connect is under way: connected follows.
	dial(s *slot) error
	// open watches a slot whose connect has succeeded: took and broken follow.
	open(s *slot) error
	// want asks for room to write, or no longer: flush follows.
	want(s *slot, write bool) error
	// drop closes a slot's connection. Nothing of it follows.
	drop(s *slot)
	// pause is told that the loop will sleep before it waits, and says whether it must not, because more events are there already.
	pause() (more bool)
	// wait waits for events until the next timer.
func (l *loop) wait() (int, error) {
	until := l.probe
	if len(l.timers) > 0 {
		until = min(until, l.timers[0].at)
	}
	if l.arrival > 0 && len(l.free) > 0 {
		until = min(until, l.arrival)
	}
	left := max(until-l.e.now(), 0)
	if l.gather(left) {
		left = max(until-l.e.now(), 0)
	}
	return l.io.wait(time.Duration(left))
}

const (
	// fastRate is the rate of events above which a loop ticks, and rateOver is over how long it is taken.
	fastRate = 4000
	rateOver = int64(10 * time.Millisecond)
)

// gather lets events come together for a tick when they come fast, unless something is due before. A wait for each few
// events would wake this process, and cost the server that wake too, for nearly every one.
func (l *loop) gather(left int64) bool {
	if l.tick == 0 {
		return false
	}
	if now := l.e.now(); now-l.since >= rateOver {
		l.fast = int64(l.seen)*int64(time.Second) >= fastRate*(now-l.since)
		l.seen, l.since = 0, now
	}
	if !l.fast || left <= int64(l.tick) || l.io.pause() {
		return false
	}
	ts := unix.NsecToTimespec(int64(l.tick))
	_ = unix.Nanosleep(&ts, nil) // a signal may cut it short
	return true
}

// due fires the timers and starts the arrivals whose time has come.
func (l *loop) due() {
	for len(l.timers) > 0 {
		now := l.e.now()
		if l.timers[0].at > now {
			break
		}
		t := l.timers.pop()
		s := l.slots[t.slot]
		if s.queuedAt != t.at {
			continue
		}
		s.queuedAt = 0
		switch {
		case s.wake == 0:
		case s.wake > now:
			l.sleep(s, s.wake)
		default:
			s.wake = 0
			l.fire(s, now)
		}
	}
	for l.arrival > 0 && len(l.free) > 0 && l.e.now() >= l.arrival && !l.canceled {
		s := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		due := l.arrival
		l.arrival = 0
		if l.next(s) && s.x.row.Intended >= due { // it was free in time: what is late is the loop
			l.l.late(l.e.now() - s.x.row.Intended)
		}
	}
}

// sleep sets the slot's timer.
func (l *loop) sleep(s *slot, at int64) {
	s.wake = at
	if s.queuedAt == 0 || at < s.queuedAt {
		s.queuedAt = at
		l.timers.push(at, s.number)
	}
}

// fire is the slot's timer: its pause is over, or its request took too long.
func (l *loop) fire(s *slot, now int64) {
	switch s.state {
	case slotIdle:
		l.next(s)
	case slotQueued, slotConnecting, slotOpen:
		s.x.broke(report.EndTimeout, now)
		l.ended(s)
	}
}

// next gives the slot its next request, true when there was one. A slot without a request waits or stops.
func (l *loop) next(s *slot) bool {
	s.state = slotIdle
	if l.canceled {
		l.stopSlot(s)
		return false
	}
	now := l.e.now()
	j, at, v := l.e.plan.take(now, false)
	switch v {
	case verdictStop:
		l.stopSlot(s)
		for _, f := range l.free { // an idle slot has no event of its own to learn it from
			l.stopSlot(f)
		}
		l.free = l.free[:0]
		return false
	case verdictWait:
		l.free = append(l.free, s)
		l.arrival = at
		return false
	}
	if l.e.cfg.Rate > 0 && l.arrival == 0 {
		l.arrival = now // ask for the next one in due
	}
	s.x.begin(j)
	s.out = s.out[:0]
	l.sleep(s, now+int64(l.e.cfg.Timeout))
	if s.reused = s.fd >= 0; s.reused {
		l.send(s)
		return true
	}
	s.state = slotQueued
	l.queue = append(l.queue, s)
	return true
}

func (l *loop) stopSlot(s *slot) {
	if s.state == slotStopped {
		return
	}
	l.hangUp(s)
	s.state, s.wake = slotStopped, 0
	l.running--
}

// ended goes on after an exchange: with the next request at once, or after a pause when it failed.
func (l *loop) ended(s *slot) {
	if !s.x.keepable() {
		l.hangUp(s)
	}
	s.state = slotIdle
	if s.fails++; s.x.row.OK() {
		s.fails = 0
	}
	if s.fails > 0 && !l.canceled {
		l.sleep(s, l.e.now()+int64(pause(s.fails)))
		return
	}
	s.wake = 0
	l.next(s)
}

// cancel ends all that is open.
func (l *loop) cancel() {
	if l.canceled {
		return
	}
	l.canceled = true
	now := l.e.now()
	for _, s := range l.slots {
		switch s.state {
		case slotQueued, slotConnecting, slotOpen:
			s.x.broke(report.EndCanceled, now)
		}
		l.stopSlot(s)
	}
	l.free, l.queue = nil, nil
}
