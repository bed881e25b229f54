package nats

import (
	"context"
	"fmt"
	"sync"
	"time"

	natsio "github.com/nats-io/nats.go"
	natsmicro "github.com/nats-io/nats.go/micro"

	"github.com/laneway-ai/laneway/discovery"
)

// place is one worker's endpoint: a subscription whose callback never blocks, a bounded queue, and a goroutine that
// calls the handler. So a handler that is slow holds up its own worker only.
type place struct {
	d       *Deliverer
	worker  discovery.Worker
	handler discovery.Handler
	sub     *natsio.Subscription
	queue   chan *natsio.Msg
	stats   endpointStats

	once    sync.Once
	unsub   chan struct{} // closed when the subscription's last callback has run
	drained chan struct{} // closed when the handler's last call has returned
}

// Serve implements discovery.Deliverer. It returns once the server knows of the worker, so that a request of anybody
// who learns of it afterwards arrives. A worker id can be served once by a Deliverer; should two processes serve the
// same one, a request goes to one of them.
func (d *Deliverer) Serve(ctx context.Context, w discovery.Worker, h discovery.Handler) (discovery.Service, error) {
	if _, err := w.Encode(); err != nil {
		return nil, fmt.Errorf("nats: serve: %w", err)
	}
	if h == nil {
		return nil, fmt.Errorf("nats: serve worker %s: the handler is nil", w.ID)
	}
	p := &place{d: d, worker: w, handler: h, queue: make(chan *natsio.Msg, d.cfg.Queue),
		unsub: make(chan struct{}), drained: make(chan struct{})}
	if err := d.add(p); err != nil {
		return nil, err
	}

	go func() {
		defer d.wg.Done()
		defer close(p.drained)
		p.work()
	}()
	fctx, cancel := context.WithTimeout(ctx, d.cfg.DialTimeout)
	defer cancel()
	if err := d.nc.FlushWithContext(fctx); err != nil {
		_ = p.Drain(ctx)
		if d.life.Err() != nil {
			return nil, discovery.ErrClosed
		}
		return nil, fmt.Errorf("nats: serve worker %s: %w", w.ID, d.unavailable(err))
	}
	return p, nil
}

// add enters the place and subscribes. nats.go's subscribing sends nothing by itself, so it is done under the lock.
func (d *Deliverer) add(p *place) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return discovery.ErrClosed
	}
	if _, there := d.places[p.worker.ID]; there {
		return fmt.Errorf("nats: worker %s is served already", p.worker.ID)
	}
	if d.micro == nil {
		m, err := newMicro(d)
		if err != nil {
			return fmt.Errorf("nats: serve worker %s: %w", p.worker.ID, err)
		}
		d.micro = m
	}
	sub, err := d.nc.QueueSubscribe(d.subject(p.worker.ID), natsmicro.DefaultQueueGroup, p.take)
	if err != nil {
		return fmt.Errorf("nats: serve worker %s: %w", p.worker.ID, err)
	}
	sub.SetClosedHandler(func(string) { close(p.unsub) })
	p.sub = sub
	d.places[p.worker.ID] = p
	d.wg.Add(1)
	return nil
}

// take is the subscription's callback.
func (p *place) take(m *natsio.Msg) {
	select {
	case p.queue <- m:
	default:
		p.answer(m, discovery.Reply{Answer: discovery.Busy,
			Reason: fmt.Sprintf("%d requests wait for this worker's handler already", cap(p.queue))}, 0)
	}
}

// work calls the handler until the subscription has ended and the queue is empty.
func (p *place) work() {
	for {
		select {
		case m := <-p.queue:
			p.handle(m)
		case <-p.unsub:
			for { // nobody adds to it any more
				select {
				case m := <-p.queue:
					p.handle(m)
				default:
					return
				}
			}
		}
	}
}

func (p *place) handle(m *natsio.Msg) {
	if p.d.life.Err() != nil {
		return // cut off by Close; the requester sees no answer
	}
	begin := time.Now()
	req, reply := decodeRequest(m)
	if reply.Answer == 0 {
		reply = p.handler(p.d.life, req)
	}
	p.answer(m, reply, time.Since(begin))
}

func (p *place) answer(m *natsio.Msg, r discovery.Reply, took time.Duration) {
	var err error
	if m.Reply != "" {
		err = m.RespondMsg(encodeReply(r))
	}
	if err != nil && p.d.life.Err() == nil {
		p.d.cfg.Logger.Warn("nats: a reply could not be sent; the requester will try elsewhere", "worker", p.worker.ID,
			"answer", r.Answer.String(), "err", err)
	}
	p.stats.count(r, took, err)
}

// begin starts draining: the server sends nothing new, what it has sent still comes.
func (p *place) begin() {
	p.once.Do(func() {
		p.d.mu.Lock()
		if p.d.places[p.worker.ID] == p {
			delete(p.d.places, p.worker.ID)
		}
		p.d.mu.Unlock()
		// Without a connection nothing is on its way, and nats.go would wait for an answer first.
		if !p.d.nc.IsConnected() || p.sub.Drain() != nil {
			_ = p.sub.Unsubscribe() // fails when the connection is closed, which ends it as well
		}
	})
}

// Drain implements discovery.Service.
func (p *place) Drain(ctx context.Context) error {
	p.begin()
	select {
	case <-p.drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
