package frontend

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// keeper wakes streams that have been silent for an interval, so that they write a comment. One ticker serves all
// streams: a timer, or a context with a deadline, for each token would cost more than the token's write.
type keeper struct {
	interval time.Duration
	epoch    time.Time
	quit     chan struct{}
	done     chan struct{}
	once     sync.Once

	mu  sync.Mutex
	all map[*waiter]struct{}
}

// newKeeper starts the ticker; interval < 0 = no keep-alive.
func newKeeper(interval time.Duration) *keeper {
	k := &keeper{interval: interval, epoch: time.Now(), quit: make(chan struct{}), done: make(chan struct{}),
		all: make(map[*waiter]struct{})}
	if interval < 0 {
		close(k.done)
		return k
	}
	go k.run()
	return k
}

func (k *keeper) close() {
	k.once.Do(func() { close(k.quit) })
	<-k.done
}

func (k *keeper) run() {
	defer close(k.done)
	tick := time.NewTicker(max(k.interval/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-k.quit:
			return
		case now := <-tick.C:
			k.wake(now.Sub(k.epoch))
		}
	}
}

func (k *keeper) wake(now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for w := range k.all {
		if now-time.Duration(w.last.Load()) >= k.interval {
			w.fire()
		}
	}
}

// errSilent is the error of a waiter whose stream has been silent for too long.
var errSilent = errors.New("frontend: time for a keep-alive")

// waiter has a stream wait for records until a keep-alive is due. It is used by one stream's goroutine.
type waiter struct {
	request context.Context
	keeper  *keeper
	last    atomic.Int64 // when the stream wrote, as duration since the keeper's epoch
	unlink  func() bool

	mu   sync.Mutex
	turn *turn
}

// turn is the context of one wait. It ends when the request does, and when a keep-alive is due; then the next wait has
// another, because a context that has ended stays so: what was derived from it may find out late.
type turn struct {
	context.Context // the request's

	mu    sync.Mutex
	ended chan struct{}
	err   error                // why it has ended
	after map[*func()]struct{} // what AfterFunc has to call
}

var _ context.Context = (*turn)(nil)

// watch returns a waiter for the request of ctx; nil when there is no keep-alive. leave must be called.
func (k *keeper) watch(ctx context.Context, now time.Time) *waiter {
	if k.interval < 0 {
		return nil
	}
	w := &waiter{request: ctx, keeper: k, turn: newTurn(ctx)}
	w.wrote(now)
	w.unlink = context.AfterFunc(ctx, w.fire)
	k.mu.Lock()
	k.all[w] = struct{}{}
	k.mu.Unlock()
	return w
}

func (w *waiter) leave() {
	w.unlink()
	w.keeper.mu.Lock()
	delete(w.keeper.all, w)
	w.keeper.mu.Unlock()
}

// wrote notes that the stream wrote something.
func (w *waiter) wrote(now time.Time) { w.last.Store(int64(now.Sub(w.keeper.epoch))) }

// ctx is the context of the present wait.
func (w *waiter) ctx() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turn
}

func (w *waiter) fire() {
	w.mu.Lock()
	t := w.turn
	w.mu.Unlock()
	t.end()
}

// again begins the next wait after a keep-alive was due; false when the wait did not end for that, or the request has
// ended too.
func (w *waiter) again() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turn.Err() != errSilent || w.request.Err() != nil {
		return false
	}
	w.turn = newTurn(w.request)
	if w.request.Err() != nil { // fire may have come just before
		return false
	}
	return true
}

func newTurn(ctx context.Context) *turn { return &turn{Context: ctx, ended: make(chan struct{})} }

func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return
	}
	if t.err = t.Context.Err(); t.err == nil {
		t.err = errSilent
	}
	close(t.ended)
	for f := range t.after {
		go (*f)()
	}
	t.after = nil
}

// AfterFunc has f called, in a goroutine of its own, once the turn has ended. context.AfterFunc uses it; without it
// that would keep a goroutine for each stream that waits.
func (t *turn) AfterFunc(f func()) (stop func() bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		go f()
		return func() bool { return false }
	}
	if t.after == nil {
		t.after = make(map[*func()]struct{}, 1)
	}
	t.after[&f] = struct{}{}
	return func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		_, waits := t.after[&f]
		delete(t.after, &f)
		return waits
	}
}

// Done is closed when the request has ended or a keep-alive is due.
func (t *turn) Done() <-chan struct{} { return t.ended }

// Err is the request's error, or errSilent; nil until Done is closed.
func (t *turn) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
