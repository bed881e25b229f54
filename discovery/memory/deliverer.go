package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/laneway-ai/laneway/discovery"
)

var _ discovery.Deliverer = (*Deliverer)(nil)

// Deliverer is one process's discovery.Deliverer. Methods may be called concurrently.
type Deliverer struct {
	hub       *Hub
	namespace string
	life      context.Context
	end       context.CancelFunc

	mu     sync.Mutex
	closed bool
	mine   map[string]*place
	wg     sync.WaitGroup // places
}

// Deliverer returns the deliverer of one more process.
func (h *Hub) Deliverer(namespace string) (*Deliverer, error) {
	if err := checkNamespace(namespace); err != nil {
		return nil, err
	}
	d := &Deliverer{hub: h, namespace: namespace, mine: make(map[string]*place)}
	d.life, d.end = context.WithCancel(context.Background())
	return d, nil
}

// place is one worker's handler and the queue before it.
type place struct {
	d       *Deliverer
	id      string
	handler discovery.Handler
	drained chan struct{} // closed when the last call of the handler has returned

	mu    sync.Mutex // guards queue against being closed under a sender
	shut  bool
	queue chan call
}

// call is a request on its way.
type call struct {
	req   discovery.Request
	reply chan discovery.Reply // capacity 1
}

// Deliver implements discovery.Deliverer. The request is copied, as a network would.
func (d *Deliverer) Deliver(ctx context.Context, workerID string, req discovery.Request) (discovery.Reply, error) {
	if !discovery.ValidName(workerID) {
		return discovery.Reply{}, fmt.Errorf("memory: worker id %q is not 1 to 128 letters, digits, '-' or '_'",
			workerID)
	}
	if d.life.Err() != nil {
		return discovery.Reply{}, discovery.ErrClosed
	}
	if ctx.Err() != nil {
		return discovery.Reply{}, context.Cause(ctx)
	}
	n := len(req.Payload) + len(req.Terms) + len(req.ID)
	for k, v := range req.Header {
		n += len(k) + len(v)
	}
	if n > d.hub.cfg.MaxPayload {
		return discovery.Reply{}, &discovery.SizeError{Size: n, Max: d.hub.cfg.MaxPayload}
	}
	p := d.hub.place(d.namespace, workerID)
	if p == nil {
		return discovery.Reply{}, discovery.ErrNoResponders
	}
	req.Payload, req.Terms, req.Header = slices.Clone(req.Payload), slices.Clone(req.Terms), maps.Clone(req.Header)
	c := call{req: req, reply: make(chan discovery.Reply, 1)}
	if reply, err := p.offer(c); err != nil || reply.Answer != 0 {
		return reply, err
	}
	select {
	case r := <-c.reply:
		return r, nil
	case <-ctx.Done():
		return discovery.Reply{}, context.Cause(ctx)
	case <-d.life.Done():
		return discovery.Reply{}, discovery.ErrClosed
	case <-p.drained:
		// The worker's side was closed with the request in its queue, unless the answer came at the same moment.
		select {
		case r := <-c.reply:
			return r, nil
		default:
			return discovery.Reply{}, discovery.ErrUnavailable
		}
	}
}

// place is where requests to a worker go.
func (h *Hub) place(namespace, id string) *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.places[namespace][id]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// offer puts the call into the queue, or says at once why not.
func (p *place) offer(c call) (discovery.Reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		return discovery.Reply{}, discovery.ErrNoResponders
	}
	select {
	case p.queue <- c:
		return discovery.Reply{}, nil
	default:
		return discovery.Reply{Answer: discovery.Busy,
			Reason: fmt.Sprintf("%d requests wait for this worker's handler already", cap(p.queue))}, nil
	}
}

// Serve implements discovery.Deliverer. Should two deliverers serve one worker, the later one gets the requests.
func (d *Deliverer) Serve(_ context.Context, w discovery.Worker, h discovery.Handler) (discovery.Service, error) {
	if _, err := w.Encode(); err != nil {
		return nil, fmt.Errorf("memory: serve: %w", err)
	}
	if h == nil {
		return nil, fmt.Errorf("memory: serve worker %s: the handler is nil", w.ID)
	}
	p := &place{d: d, id: w.ID, handler: h, queue: make(chan call, d.hub.cfg.Queue), drained: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, discovery.ErrClosed
	}
	if _, there := d.mine[w.ID]; there {
		return nil, fmt.Errorf("memory: worker %s is served already", w.ID)
	}
	d.mine[w.ID] = p
	d.hub.mu.Lock()
	if d.hub.places[d.namespace] == nil {
		d.hub.places[d.namespace] = make(map[string][]*place)
	}
	d.hub.places[d.namespace][w.ID] = append(d.hub.places[d.namespace][w.ID], p)
	d.hub.mu.Unlock()
	d.wg.Go(p.work)
	return p, nil
}

func (p *place) work() {
	defer close(p.drained)
	for c := range p.queue {
		if p.d.life.Err() != nil {
			continue // cut off by Close
		}
		r := p.handler(p.d.life, c.req)
		if r.Answer < discovery.Accepted || r.Answer > discovery.Stale {
			r = discovery.Reply{Answer: discovery.BadRequest, Reason: fmt.Sprintf("the worker's handler returned %s",
				r.Answer)}
		}
		c.reply <- r
	}
}

// begin starts draining: nothing new gets in.
func (p *place) begin() {
	p.d.mu.Lock()
	if p.d.mine[p.id] == p {
		delete(p.d.mine, p.id)
	}
	p.d.mu.Unlock()
	h := p.d.hub
	h.mu.Lock()
	all := h.places[p.d.namespace]
	all[p.id] = slices.DeleteFunc(all[p.id], func(q *place) bool { return q == p })
	if len(all[p.id]) == 0 {
		delete(all, p.id)
	}
	h.mu.Unlock()
	p.mu.Lock()
	if !p.shut {
		p.shut = true
		close(p.queue)
	}
	p.mu.Unlock()
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

// Close implements discovery.Deliverer: handlers that run see their context end, requests in the queues are not
// handled. It never fails.
func (d *Deliverer) Close() error {
	d.mu.Lock()
	d.closed = true
	places := slices.Collect(maps.Values(d.mine))
	d.mu.Unlock()
	d.end()
	for _, p := range places {
		p.begin()
	}
	d.wg.Wait()
	return nil
}
