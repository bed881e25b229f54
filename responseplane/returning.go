package responseplane

import (
	"context"
	"time"

	"github.com/laneway-ai/laneway/mux"
)

// While a link is without a lane its worker takes no new request, and others are asked. Where there is no other, a request is
// better late than refused: the link goes on over another plane, or the same one, within seconds, and one that is lost says so.

// patience is how long a request may wait, in all, for links that are down: as long as such a link has to come back, and no
// longer than the first record may take.
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

// awaitReturn waits for the link of a worker that would take the request if it could be reached, and returns that worker. It
// returns nil when there is none, when the time is up, and when ctx ends.
func (f *Frontend) awaitReturn(ctx context.Context, req Request, tried []*workerEntry, left *time.Duration) *workerEntry {
	for *left > 0 && ctx.Err() == nil {
		w := f.mayReturn(req, tried)
		if w == nil {
			return nil
		}
		begun := time.Now()
		wait, cancel := context.WithTimeout(ctx, *left)
		err := f.recv.AwaitReturn(wait, w.node)
		cancel()
		*left -= time.Since(begun)
		if err == nil {
			return w
		}
		if w, _ := f.pick(req, tried); w != nil { // another one has come up meanwhile
			return w
		}
	}
	return nil
}

// mayReturn chooses a worker whose link is down and not lost, also one that was tried before it went down.
func (f *Frontend) mayReturn(req Request, tried []*workerEntry) *workerEntry {
	f.mu.RLock()
	defer f.mu.RUnlock()
	list := f.candidates(req)
	if len(list) == 0 {
		return nil
	}
	return f.choose(list, func(w *workerEntry, last rank) bool {
		if w.gone.Load() || w.vanished.Load() != 0 || !f.recv.UpSoon(w.node) {
			return false
		}
		return !wasTried(w, tried) || !f.recv.Up(w.node)
	})
}

// elsewhere says whether another worker than w, on another node, would take the request.
func (f *Frontend) elsewhere(req Request, tried []*workerEntry, w *workerEntry) bool {
	other, _ := f.pick(req, append(tried[:len(tried):len(tried)], w))
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

func wasTried(w *workerEntry, tried []*workerEntry) bool {
	for _, t := range tried {
		if t.workerCounts == w.workerCounts {
			return true
		}
	}
	return false
}
