package httpfront

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// keeper wakes streams that have been silent for an interval, so that they write a comment. One ticker serves all streams: a timer, or
// a context with a deadline, for each token would cost more than the token's write.
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
	k := &keeper{interval: interval, epoch: time.Now(), quit: make(chan struct{}), done: make(chan struct{}), all: make(map[*waiter]struct{})}
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
var errSilent = errors.New("httpfront: time for a keep-alive")

// waiter is the context that a stream waits for records with. It ends when its parent does, and when a keep-alive is due; the latter can
// be taken back with again. It is used by one stream's goroutine.
type waiter struct {
	context.Context // the request's
	keeper          *keeper
	last            atomic.Int64 // when the stream wrote, as duration since the keeper's epoch
	unlink          func() bool

	mu    sync.Mutex
	ended chan struct{}
	fired bool
	after map[*func()]struct{} // what AfterFunc has to call
}

var _ context.Context = (*waiter)(nil)

// watch returns a waiter over ctx; nil when there is no keep-alive. leave must be called.
func (k *keeper) watch(ctx context.Context, now time.Time) *waiter {
	if k.interval < 0 {
		return nil
	}
	w := &waiter{Context: ctx, keeper: k, ended: make(chan struct{})}
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

func (w *waiter) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.fired {
		w.fired = true
		close(w.ended)
		for f := range w.after {
			go (*f)()
		}
		w.after = nil
	}
}

// AfterFunc has f called, in a goroutine of its own, once the waiter is done. context.AfterFunc uses it; without it that
// would keep a goroutine for each stream that waits.
func (w *waiter) AfterFunc(f func()) (stop func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fired {
		go f()
		return func() bool { return false }
	}
	if w.after == nil {
		w.after = make(map[*func()]struct{}, 1)
	}
	w.after[&f] = struct{}{}
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, waits := w.after[&f]
		delete(w.after, &f)
		return waits
	}
}

// again makes the waiter usable after a keep-alive was due; false when that was not so.
func (w *waiter) again() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.fired || w.Context.Err() != nil {
		return false
	}
	w.fired = false
	w.ended = make(chan struct{})
	return true
}

// Done is closed when the request has ended or a keep-alive is due.
func (w *waiter) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// Err is the request's error, or errSilent.
func (w *waiter) Err() error {
	if err := w.Context.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fired {
		return errSilent
	}
	return nil
}
