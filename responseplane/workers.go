package responseplane

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/transport"
)

// workerEntry is one worker as the router sees it. Each record that a registry puts makes a new one.
type workerEntry struct {
	rec  discovery.Worker
	node NodeID
	*workerCounts
	// vanished is until when the worker may still be used although its record has gone, in unix nanoseconds; 0 = its
	// record is there.
	vanished atomic.Int64
	gone     atomic.Bool // not in the tables any more
	// holds is the entry that counts it, nil = none, and says what its record says of the process's addresses. The
	// Frontend's lock guards them.
	holds *nodeEntry
	says  *nodeAddress
	on    *nodeEntry // its process, also when that does not count it any more
}

// avoided says whether others are preferred for now.
func (w *workerEntry) avoided(now time.Time) bool {
	at := now.UnixNano()
	return w.avoid.Load() > at || w.on.avoid.Load() > at
}

// workerCounts outlive a record: a worker that is put again in the same process is the same worker.
type workerCounts struct {
	open  atomic.Int64 // responses that are open there from this Frontend
	avoid atomic.Int64 // unix nanoseconds until which others are preferred
}

// pool is the workers of one model. Adding and removing cost the same however many there are.
type pool struct {
	list []*workerEntry
	at   map[*workerEntry]int
}

func (p *pool) add(w *workerEntry) {
	if _, ok := p.at[w]; ok {
		return // the record names the model twice
	}
	p.at[w] = len(p.list)
	p.list = append(p.list, w)
}

func (p *pool) remove(w *workerEntry) {
	i, ok := p.at[w]
	if !ok {
		return
	}
	last := len(p.list) - 1
	p.list[i] = p.list[last]
	p.at[p.list[i]] = i
	p.list[last] = nil
	p.list = p.list[:last]
	delete(p.at, w)
}

// putWorker takes a record that is new or has changed.
func (f *Frontend) putWorker(rec discovery.Worker) error {
	_, err := f.addNode(rec.Node, rec.ID, func(n *nodeEntry, a *nodeAddress) { f.putLocked(rec, n, a) })
	return err // a worker that shares no plane is known, is not routed to, and its error is said
}

// putLocked enters a worker of a process. The lock is held.
func (f *Frontend) putLocked(rec discovery.Worker, n *nodeEntry, a *nodeAddress) {
	node, _ := transport.ParseNodeID(rec.Node.ID) // addNode has checked it
	w := &workerEntry{rec: rec, node: node, workerCounts: &workerCounts{}, holds: n, says: a, on: n}
	n.workers++ // before an older record lets go
	a.workers++
	if old := f.workers[rec.ID]; old != nil {
		if old.node == node {
			w.workerCounts = old.workerCounts
		}
		f.removeLocked(old)
	}
	f.workers[rec.ID] = w
	for _, m := range rec.Models {
		p := f.models[m]
		if p == nil {
			p = &pool{at: make(map[*workerEntry]int)}
			f.models[m] = p
		}
		p.add(w)
	}
}

// dropWorker takes note that a worker's record has gone. From then on the worker is the last choice, and none at all
// once its link is down, its process says that it drains, or KeepVanished has passed. A process of which no record is
// left may have died, so it is asked.
func (f *Frontend) dropWorker(id string) {
	f.mu.Lock()
	w := f.workers[id]
	if w == nil || w.vanished.Load() != 0 {
		f.mu.Unlock()
		return
	}
	last := f.releaseLocked(w)
	if f.cfg.KeepVanished > 0 {
		w.vanished.Store(time.Now().Add(f.cfg.KeepVanished).UnixNano())
		f.vanished[w] = struct{}{}
	} else {
		f.removeLocked(w)
	}
	f.mu.Unlock()
	if last {
		f.recv.Suspect(w.node)
	}
}

// removeLocked takes a worker out of the tables. The lock is held.
func (f *Frontend) removeLocked(w *workerEntry) {
	f.releaseLocked(w)
	w.gone.Store(true)
	delete(f.vanished, w)
	delete(f.workers, w.rec.ID)
	for _, m := range w.rec.Models {
		if p := f.models[m]; p != nil {
			if p.remove(w); len(p.list) == 0 {
				delete(f.models, m)
			}
		}
	}
}

// usable says whether a worker whose record has gone may still be used. One whose record is there always passes.
func (f *Frontend) usable(w *workerEntry, now time.Time) bool {
	until := w.vanished.Load()
	return until == 0 || now.UnixNano() < until && f.recv.Up(w.node)
}

// sweep forgets workers whose record has gone and that cannot be used any more.
func (f *Frontend) sweep(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.vanished {
		if !f.usable(w, now) {
			f.removeLocked(w)
		}
	}
}

// blame has a worker, or its process, avoided for a while if the reason why it failed a request speaks against it.
func (f *Frontend) blame(w *workerEntry, why reason, request string, err error) {
	avoid, who := &w.avoid, "a worker"
	switch f.fault(why) {
	case faultNobody:
		return
	case faultNode:
		if errors.Is(err, ErrLost) && !errors.Is(err, mux.ErrLinkDown) && f.recv.UpSoon(w.node) {
			return // it has forgotten the link, and takes another one
		}
		avoid, who = &w.on.avoid, "a worker process"
	}
	now := time.Now()
	if was := avoid.Swap(now.Add(f.cfg.AvoidFor).UnixNano()); was < now.UnixNano() && f.cfg.AvoidFor > 0 {
		f.cfg.Logger.Info(who+" failed a request; others are preferred for a while", "worker", w.rec.ID,
			"name", w.rec.Node.Name, "for", f.cfg.AvoidFor, "request", request, "error", err)
	}
}
