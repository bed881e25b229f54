// Package feed turns what a registry sees (snapshots and changes of raw records) into the events of
// discovery.Registry's Watch: differences only, a record that does not hold reported once while the last good one
// stays.
package feed

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/laneway-ai/laneway/discovery"
)

// Record is a raw record and the key that names it in errors.
type Record struct {
	Key  string
	Data []byte
}

// Feed is one watcher's view. One goroutine tells it what it sees; another one, its own, hands out events. A consumer
// that is slow gets the latest state of each worker, not each state in between, so what is waiting is bounded by the
// number of workers.
type Feed struct {
	out  chan discovery.Event
	wake chan struct{} // capacity 1
	stop chan struct{}
	done chan struct{}

	// known is what the source holds, by worker id. Only the telling goroutine uses it.
	known map[string]known

	mu      sync.Mutex
	order   []slot
	pending map[slot]discovery.Event
	sent    map[string]bool // workers that the consumer knows
	reason  error           // set before stop is closed
	closed  bool
}

// known is the last good record of a worker and, when it differs, the broken one that is there now.
type known struct{ good, bad []byte }

// slot is a place in the queue of events: at most one of each kind of news per worker.
type slot struct {
	id  string
	bad bool
}

// syncedSlot cannot be a worker's: its id is not valid.
var syncedSlot = slot{id: "\x00synced"}

// New returns a feed whose goroutine runs until Close.
func New() *Feed {
	f := &Feed{
		out: make(chan discovery.Event, 1), wake: make(chan struct{}, 1), stop: make(chan struct{}),
		done:  make(chan struct{}),
		known: make(map[string]known), pending: make(map[slot]discovery.Event), sent: make(map[string]bool),
	}
	go f.run()
	return f
}

// Events is the channel for the consumer.
func (f *Feed) Events() <-chan discovery.Event { return f.out }

// Snapshot says all that is there now, by worker id. What differs from before becomes events.
func (f *Feed) Snapshot(now map[string]Record) {
	ids := make([]string, 0, len(now))
	for id := range now {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		f.Put(id, now[id])
	}
	var gone []string
	for id := range f.known {
		if _, ok := now[id]; !ok {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	for _, id := range gone {
		f.Delete(id)
	}
}

// Put says that the record of a worker is this one now. f keeps the bytes.
func (f *Feed) Put(id string, r Record) {
	k := f.known[id]
	if k.bad == nil && k.good != nil && bytes.Equal(k.good, r.Data) {
		return
	}
	if k.bad != nil && bytes.Equal(k.bad, r.Data) {
		return
	}
	w, err := discovery.DecodeWorker(r.Key, r.Data)
	if err == nil && w.ID != id {
		err = &discovery.RecordError{Key: r.Key, Field: "id", Err: fmt.Errorf("is %q, its place says %q", w.ID, id)}
	}
	if err != nil {
		k.bad = append([]byte{}, r.Data...)
		f.known[id] = k
		f.invalid(id, err)
		return
	}
	// it was broken for a while; the good one was in force all the time
	same := k.good != nil && bytes.Equal(k.good, r.Data)
	f.known[id] = known{good: r.Data}
	f.put(id, w, same)
}

// Delete says that the worker's record has gone.
func (f *Feed) Delete(id string) {
	k, ok := f.known[id]
	delete(f.known, id)
	if ok {
		f.remove(id, k.good != nil)
	}
}

// Invalid reports an error that belongs to no worker's record, such as a file that cannot be read. It is not
// remembered.
func (f *Feed) Invalid(err error) { f.invalid("", err) }

// Len is how many records are there, good or not.
func (f *Feed) Len() int { return len(f.known) }

// Synced says that the state that was there at the beginning has been told.
func (f *Feed) Synced() {
	f.mu.Lock()
	f.queue(syncedSlot, discovery.Event{Kind: discovery.Synced})
	f.mu.Unlock()
	f.poke()
}

// Close drops what is waiting, gives the consumer a last event with the reason, closes its channel and joins the
// goroutine. It never waits for the consumer. Idempotent.
func (f *Feed) Close(reason error) {
	f.mu.Lock()
	if !f.closed {
		f.closed, f.reason = true, reason
		close(f.stop)
	}
	f.mu.Unlock()
	<-f.done
}

func (f *Feed) put(id string, w discovery.Worker, same bool) {
	f.mu.Lock()
	f.drop(slot{id, true}) // an older complaint is settled
	if !same {
		f.queue(slot{id, false}, discovery.Event{Kind: discovery.Put, Worker: w})
	}
	f.mu.Unlock()
	f.poke()
}

func (f *Feed) invalid(id string, err error) {
	f.mu.Lock()
	f.drop(slot{id, true})
	f.queue(slot{id, true}, discovery.Event{Kind: discovery.Invalid, Worker: discovery.Worker{ID: id}, Err: err})
	f.mu.Unlock()
	f.poke()
}

func (f *Feed) remove(id string, hadGood bool) {
	f.mu.Lock()
	f.drop(slot{id, true})
	f.drop(slot{id, false})
	if hadGood && f.sent[id] {
		f.queue(slot{id, false}, discovery.Event{Kind: discovery.Delete, Worker: discovery.Worker{ID: id}})
	}
	f.mu.Unlock()
	f.poke()
}

// queue puts an event at its slot's place, or at the end. f.mu is held.
func (f *Feed) queue(s slot, ev discovery.Event) {
	if _, ok := f.pending[s]; !ok {
		f.order = append(f.order, s)
	}
	f.pending[s] = ev
}

// drop forgets what waits at a slot. Its place in order goes as well, so that later news stands at the end. f.mu is
// held.
func (f *Feed) drop(s slot) {
	if _, ok := f.pending[s]; !ok {
		return
	}
	delete(f.pending, s)
	if i := slices.Index(f.order, s); i >= 0 {
		f.order = slices.Delete(f.order, i, i+1)
	}
}

func (f *Feed) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// next takes the first event from the queue.
func (f *Feed) next() (discovery.Event, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.order) == 0 {
		f.order = nil // gives the array back after a large snapshot
		return discovery.Event{}, false
	}
	s := f.order[0]
	f.order = f.order[1:]
	ev := f.pending[s]
	delete(f.pending, s)
	switch ev.Kind {
	case discovery.Put:
		f.sent[s.id] = true
	case discovery.Delete:
		delete(f.sent, s.id)
	}
	return ev, true
}

func (f *Feed) run() {
	defer close(f.done)
	defer close(f.out)
	for {
		ev, ok := f.next()
		if !ok {
			select {
			case <-f.wake:
				continue
			case <-f.stop:
				f.last()
				return
			}
		}
		select {
		case f.out <- ev:
		case <-f.stop:
			f.last()
			return
		}
	}
}

// last leaves the reason as the one thing to read. The channel has room for one and no other sender.
func (f *Feed) last() {
	select {
	case <-f.out:
	default:
	}
	f.out <- discovery.Event{Kind: discovery.Closed, Err: f.reason}
}
