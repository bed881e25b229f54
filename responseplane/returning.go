package responseplane

import (
	"context"
	"time"

	"github.com/laneway-ai/laneway/mux"
)

// While a link is without a lane its worker takes no new request, and others are asked. Where there is no other, a
// request is better late than refused: the link goes on over another plane, or the same one, within seconds, and one
// that is lost says so. The same goes for a link that is only being made: to a worker that is new, or that has
// forgotten the former one because this process was stopped or cut off for long.

// patience is how long a request may wait, in all, for links that are down: as long as such a link has to come back,
// and no longer than the first record may take.
func (f *Frontend) patience(req Request) time.Duration {
	left := f.cfg.ResumeTimeout
	if left == 0 {
		left = mux.DefaultResume
	}
	if req.FirstRecordTimeout > 0 {
		left = min(left, req.FirstRecordTimeout)
	}
	return left
}

// lookAround is how long a request waits for one link before it looks whether another one has come.
const lookAround = 250 * time.Millisecond

// awaitReturn waits for the link of a worker that would take the request if it could be reached, and returns that
// worker. It returns nil when there is none, when the time is up, and when ctx ends.
func (f *Frontend) awaitReturn(ctx context.Context, req Request, h *tries, left *time.Duration) *workerEntry {
	for *left > 0 && ctx.Err() == nil {
		w := f.mayReturn(req, *h)
		if w == nil {
			return nil
		}
		begun := time.Now()
		err := f.linkComes(ctx, w.node, *h, min(*left, lookAround))
		*left -= max(time.Since(begun), time.Millisecond) // a link that comes and goes takes time, too
		if err == nil {
			h.forget(f, w.node)
			return w
		}
		if w, _ := f.pick(req, *h, *left); w != nil { // another one has come up meanwhile
			return w
		}
	}
	return nil
}

// linkComes waits until a node takes streams, over another link than the one that it has said it does not know.
func (f *Frontend) linkComes(ctx context.Context, node NodeID, h tries, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if held := h.heldAt(node); held != nil {
		if err := held.in.WaitOn(ctx); err != nil {
			return err
		}
	}
	return f.recv.AwaitReturn(ctx, node)
}

// mayReturn chooses a worker whose link may come, also one that was tried before it went down.
func (f *Frontend) mayReturn(req Request, h tries) *workerEntry {
	f.mu.RLock()
	defer f.mu.RUnlock()
	list := f.candidates(req)
	if len(list) == 0 {
		return nil
	}
	var others tries // but for the links
	for _, t := range h {
		if !f.ofLink(t.why) {
			others = append(others, t)
		}
	}
	now := time.Now()
	return f.choose(list, func(w *workerEntry) rank {
		at := f.rank(w, others, now)
		if at == rankVanished || at == rankNone || at == rankTried && f.recv.Up(w.node) || !f.recv.UpSoon(w.node) {
			return rankNone
		}
		return at
	})
}

// elsewhere says whether a worker on another node than w's would take the request.
func (f *Frontend) elsewhere(req Request, h tries, w *workerEntry, left time.Duration) bool {
	other, _ := f.pick(req, append(h[:len(h):len(h)], try{w: w, why: reasonLost}), left)
	return other != nil && other.node != w.node
}

// candidates are the workers that the request may go to. The lock is held.
func (f *Frontend) candidates(req Request) []*workerEntry {
	if req.Worker == "" {
		if p := f.models[req.Model]; p != nil {
			return p.list
		}
		return nil
	}
	if w := f.workers[req.Worker]; w != nil {
		return []*workerEntry{w}
	}
	return nil
}
