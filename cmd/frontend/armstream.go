package main

import (
	"context"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend/planebackend"
	"github.com/laneway-ai/laneway/internal/lab/refplane"
	"github.com/laneway-ai/laneway/responseplane"
)

// armStream is a response of a reference arm. It is no SinkStream: an arm's responses are pulled.
type armStream struct {
	p       *armPlane
	r       *refplane.Response
	w       *armWorker
	watch   *armWatch
	retried int
	closed  bool
}

func (s *armStream) NextBatch(ctx context.Context) ([][]byte, error) {
	recs, err := s.r.NextBatch(ctx)
	if err != nil {
		err = planebackend.EndError(named(err, s.w.rec.ID))
	}
	return recs, err
}

func (s *armStream) Trailer() []byte  { return s.r.Trailer() }
func (s *armStream) Stop()            { s.r.Stop() }
func (s *armStream) Kill()            { s.r.Kill() }
func (s *armStream) Worker() string   { return s.w.rec.ID }
func (s *armStream) NodeName() string { return s.w.rec.Node.Name }
func (s *armStream) Plane() string    { return s.w.rec.Node.Planes[0].Name }
func (s *armStream) Lane() int        { return 0 }
func (s *armStream) Retries() int     { return s.retried }

func (s *armStream) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.p.clock.remove(s.watch)
	s.w.open.Add(-1)
	return s.r.Close()
}

// armTick is how exact the timeouts of an arm's responses are. The plane's are as exact.
const armTick = 250 * time.Millisecond

// armClock keeps the timeouts of all open responses: one goroutine and a look at each response every tick, nothing per
// record.
type armClock struct {
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	open map[*armWatch]struct{}
}

// armWatch is a response whose times are kept.
type armWatch struct {
	r             *refplane.Response
	first, silent time.Duration // 0 = none
	deadline      time.Time     // zero = none
	records       uint64        // at the last look
	since         time.Time     // when they came to be so many
}

func newArmClock() *armClock {
	ctx, stop := context.WithCancel(context.Background())
	c := &armClock{stop: stop, open: map[*armWatch]struct{}{}}
	c.wg.Go(func() { c.run(ctx) }) // ends with close, which joins it
	return c
}

func (c *armClock) add(r *refplane.Response, first, silent time.Duration, deadline time.Time) *armWatch {
	if first == 0 && silent == 0 && deadline.IsZero() {
		return nil
	}
	w := &armWatch{r: r, first: first, silent: silent, deadline: deadline, since: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[w] = struct{}{}
	return w
}

func (c *armClock) remove(w *armWatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, w)
}

func (c *armClock) run(ctx context.Context) {
	tick := time.NewTicker(armTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for w, why := range c.over(now) {
				w.r.Expire(responseplane.EndDeadline, why)
			}
		}
	}
}

// over are the responses whose time is over, and which time that is.
func (c *armClock) over(now time.Time) map[*armWatch]string {
	out := map[*armWatch]string{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.open {
		if n := w.r.Records(); n != w.records {
			w.records, w.since = n, now
		}
		silent := now.Sub(w.since)
		switch {
		case !w.deadline.IsZero() && now.After(w.deadline):
			out[w] = "the request's deadline has passed"
		case w.records == 0 && w.first > 0 && silent > w.first:
			out[w] = "no first record in " + w.first.String()
		case w.records > 0 && w.silent > 0 && silent > w.silent:
			out[w] = "no record in " + w.silent.String()
		default:
			continue
		}
		delete(c.open, w)
	}
	return out
}

func (c *armClock) close() error {
	c.stop()
	c.wg.Wait()
	return nil
}
