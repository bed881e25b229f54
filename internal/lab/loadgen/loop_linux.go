package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

const haveLoops = true

// loopClient serves all slots from a few loops, so that a connection costs half a kilobyte and an event no wake of a
// goroutine. The loops learn of events by epoll or io_uring.
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
	// pause is told that the loop will sleep before it waits, and says whether it must not, because more events are
	// there already.
	pause() (more bool)
	// wait waits until there are events or d has passed, and says how many there are. The loop's lock is not held.
	wait(d time.Duration) (n int, err error)
	// serve hands the events to the loop.
	serve()
	// end is called last, when all slots have stopped or wait has failed.
	end()
	close()
}

func newLoopClient(e *engine, kind string) (client, error) {
	ap, err := netip.ParseAddrPort(e.addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", e.addr, err)
	}
	c := &loopClient{e: e, name: kind}
	n := min(e.cfg.Loops, e.cfg.Concurrency)
	for i := range n {
		l, err := newLoop(e, ap, kind)
		if err != nil {
			for _, l := range c.loops {
				l.close()
			}
			return nil, err
		}
		l.tick = e.cfg.Tick
		c.loops = append(c.loops, l)
		for s := i; s < e.cfg.Concurrency; s += n { // neighbours go to different loops
			l.add(s)
		}
	}
	return c, nil
}

func (c *loopClient) kind() string { return c.name }

func (c *loopClient) run(ctx context.Context) error {
	errs := make([]error, len(c.loops))
	var wg sync.WaitGroup
	for i, l := range c.loops {
		wg.Go(func() { errs[i] = l.run() }) // ends when its slots have stopped
	}
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		for _, l := range c.loops {
			l.interrupt()
		}
	})
	wg.Wait()
	if !stop() {
		<-told // the eventfds must stay open until interrupt has used them
	}
	for _, l := range c.loops {
		l.close()
	}
	return errors.Join(errs...)
}

// State of a slot.
type slotState uint8

const (
	slotIdle       slotState = iota // waits for its time
	slotQueued                      // has a job, waits for its turn to connect
	slotConnecting                  // connect is under way
	slotOpen                        // the request is being sent or the response read
	slotStopped                     // has nothing more to do
)

// slot is one open request at a time, and the connection that it keeps between them.
type slot struct {
	x       exchange
	number  int32 // index in the loop
	ramp    int64 // when it starts first
	state   slotState
	fd      int    // -1 without a connection
	gen     int32  // of the connection, so that events of an old one are known
	writing bool   // room to write is asked for
	armed   bool   // the ring has a receive for it
	reused  bool   // the connection carried a request before this one
	out     []byte // rest of a request that the kernel did not take
	fails   int

	wake     int64 // when the timer is to fire, 0 = never
	queuedAt int64 // the heap's entry, 0 = none
}

// loop is some of the slots and the thread that serves them. Everything in it belongs to that thread, but for stopFD.
type loop struct {
	e      *engine
	l      *local
	addr   unix.Sockaddr
	family int
	io     poller
	stopFD int // eventfd that an interrupt writes to

	slots    []*slot
	running  int // slots that are not stopped
	timers   timers
	dialing  int     // connects under way
	queue    []*slot // that wait to connect, first come first served
	free     []*slot // idle slots of a fixed schedule; the one used last is used next, so that few connections are open
	arrival  int64   // when the fixed schedule has its next request, 0 = not asked yet
	probe    int64
	canceled bool
	halted   bool // nothing more will be sent

	tick  time.Duration // how long events gather at a high rate, 0 = not at all
	seen  int           // events since since
	since int64
	fast  bool // the rate is high

	buf []byte // for reads and requests
}

func newLoop(e *engine, ap netip.AddrPort, kind string) (*loop, error) {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	l := &loop{e: e, l: newLocal(), stopFD: stop, buf: make([]byte, 64<<10)}
	if a := ap.Addr().Unmap(); a.Is4() {
		l.family, l.addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.As4()}
	} else {
		l.family, l.addr = unix.AF_INET6, &unix.SockaddrInet6{Port: int(ap.Port()), Addr: a.As16(),
			ZoneId: zoneID(a.Zone())}
	}
	if kind == ClientRing {
		l.io, err = newRing(l)
	} else {
		l.io, err = newEpoll(l)
	}
	if err != nil {
		_ = unix.Close(stop)
		return nil, err
	}
	e.locals = append(e.locals, l.l)
	return l, nil
}

// add gives the loop the run's slot n.
func (l *loop) add(n int) {
	s := &slot{number: int32(len(l.slots)), fd: -1, ramp: l.e.plan.rampStart(n)}
	s.x.e, s.x.l = l.e, l.l
	l.slots = append(l.slots, s)
}

func (l *loop) close() {
	for _, s := range l.slots {
		l.hangUp(s)
	}
	l.io.close()
	if l.stopFD >= 0 {
		_ = unix.Close(l.stopFD)
		l.stopFD = -1
	}
}

// interrupt makes the loop end its open requests. It may be called from any goroutine while the loop has not been
// closed.
func (l *loop) interrupt() {
	one := uint64(1)
	b := (*[8]byte)(unsafe.Pointer(&one))
	_, _ = unix.Write(l.stopFD, b[:]) // it cannot fail: the counter is far from its end
}

// run serves the slots until all have stopped.
func (l *loop) run() error {
	if err := l.io.begin(); err != nil {
		return err
	}
	defer l.io.end()
	l.l.mu.Lock()
	l.running = len(l.slots)
	for _, s := range l.slots {
		if s.ramp > 0 && l.e.cfg.Rate == 0 {
			l.sleep(s, s.ramp)
			continue
		}
		l.next(s)
	}
	l.connectQueued()
	l.l.mu.Unlock()
	l.probe = l.e.now() + int64(probeInterval)
	l.since = l.e.now()
	for l.running > 0 {
		n, err := l.wait()
		if err != nil {
			l.fail()
			return err
		}
		l.seen += n
		l.l.mu.Lock()
		if now := l.e.now(); now >= l.probe {
			l.l.late(now - l.probe)
			l.probe = now + int64(probeInterval)
		}
		l.io.serve()
		l.due()
		l.connectQueued()
		l.l.mu.Unlock()
	}
	return nil
}

// fail ends all requests when the loop itself cannot go on, so that each has its row.
func (l *loop) fail() {
	l.l.mu.Lock()
	defer l.l.mu.Unlock()
	l.cancel()
}

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

// due fires the timers and starts the arrivals whose time has come. When nothing more will be sent, whoever waits for
// its time stops waiting.
func (l *loop) due() {
	if !l.halted && closed(l.e.plan.halted) {
		l.halted = true
		for _, s := range l.slots {
			if s.state == slotIdle {
				l.next(s)
			}
		}
	}
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
		s.x.broke(report.EndTimeout, nil, now)
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
	l.sleep(s, report.After(now, int64(l.e.cfg.Timeout)))
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
			s.x.broke(report.EndCanceled, nil, now)
		}
		l.stopSlot(s)
	}
	l.free, l.queue = nil, nil
}
