package responseplane_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/laneway-ai/laneway/discovery"
	discoverymemory "github.com/laneway-ai/laneway/discovery/memory"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// house is a frontend and worker processes of many engines each, on the memory plane. It is made in a bubble, where
// nothing takes time that need not.
type house struct {
	net   *memory.Network
	hub   *discoverymemory.Hub
	front *responseplane.Frontend
	procs []*housed
}

// housed is one worker process.
type housed struct {
	name    string
	id      *transport.Identity
	plane   transport.Transport
	bind    string
	worker  *responseplane.Worker
	reg     *discoverymemory.Registry
	records []discovery.Worker
	handle  responseplane.Handler // nil: one token and the end

	mu    sync.Mutex
	asked int  // requests that came, known link or not
	blank bool // it knows no link
	del   *discoverymemory.Deliverer
}

// newHouse has processes of so many engines, which are registered, and the frontend has a link to each.
func newHouse(t *testing.T, change func(*responseplane.FrontendConfig), engines ...int) *house {
	t.Helper()
	h := newEmptyHouse(t, change)
	all := 0
	for i, n := range engines {
		h.start(t, fmt.Sprintf("p%d", i), n).register(t)
		all += n
	}
	eventually(t, "all workers", func() bool { _, n := h.front.Counts(); return n == all })
	return h
}

func newEmptyHouse(t *testing.T, change func(*responseplane.FrontendConfig)) *house {
	t.Helper()
	h := &house{net: memory.NewNetwork(memory.Config{})}
	var err error
	if h.hub, err = discoverymemory.New(discoverymemory.Config{}); err != nil {
		t.Fatal(err)
	}
	registry, err := h.hub.Registry("test")
	if err != nil {
		t.Fatal(err)
	}
	deliverer, err := h.hub.Deliverer("test")
	if err != nil {
		t.Fatal(err)
	}
	id := identity(t)
	plane := h.net.Transport(id.ID)
	cfg := responseplane.FrontendConfig{Identity: id, Name: "front", Transports: []transport.Transport{plane},
		Deliverer: deliverer, Router: responseplane.RouterRoundRobin}
	if change != nil {
		change(&cfg)
	}
	if h.front, err = responseplane.NewFrontend(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, unfollow := context.WithCancel(context.Background())
	following := make(chan struct{})
	go func() { defer close(following); _ = h.front.Follow(ctx, registry) }()
	t.Cleanup(func() {
		unfollow()
		<-following
		closeAll(t, h.front, deliverer, registry, plane)
		checkZero(t, "frontend", h.front.Stats())
	})
	return h
}

// start starts a process with its engines, without records.
func (h *house) start(t *testing.T, name string, engines int) *housed {
	t.Helper()
	p := &housed{name: name, id: identity(t), bind: name + ":0"}
	p.plane = h.net.Transport(p.id.ID)
	var err error
	if p.reg, err = h.hub.Registry("test"); err != nil {
		t.Fatal(err)
	}
	p.live(t, h.hub, engines)
	h.procs = append(h.procs, p)
	t.Cleanup(func() {
		p.end(t)
		closeAll(t, p.reg, p.plane)
	})
	return p
}

// live is the begin of a life of the process's Worker.
func (p *housed) live(t *testing.T, hub *discoverymemory.Hub, engines int) {
	t.Helper()
	var err error
	cfg := responseplane.WorkerConfig{Identity: p.id, Name: p.name, Transports: []transport.Transport{p.plane},
		BindAddr: p.bind, ServerEndpoints: 1}
	if p.worker, err = responseplane.NewWorker(cfg); err != nil {
		t.Fatal(err)
	}
	if err := p.worker.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.bind = p.worker.Descriptor().Planes[0].Endpoints[0]
	if p.del, err = hub.Deliverer("test"); err != nil {
		t.Fatal(err)
	}
	p.records = nil
	for i := range engines {
		rec := discovery.Worker{ID: fmt.Sprintf("%s-%d", p.name, i), Models: []string{model},
			Node: p.worker.Descriptor()}
		p.records = append(p.records, rec)
		if _, err := p.worker.Serve(t.Context(), counting{p.del, p}, rec, p.serve); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *housed) serve(req discovery.Request, w *responseplane.Writer) discovery.Reply {
	if p.handle != nil {
		return p.handle(req, w)
	}
	return oneToken(w)
}

func oneToken(w *responseplane.Writer) discovery.Reply {
	if w.TrySend([]byte("token")) == nil {
		_ = w.Complete(nil)
	}
	return discovery.Reply{Answer: discovery.Accepted}
}

// counting counts the requests that come to a process.
type counting struct {
	discovery.Deliverer
	p *housed
}

func (c counting) Serve(ctx context.Context, w discovery.Worker, h discovery.Handler) (discovery.Service, error) {
	return c.Deliverer.Serve(ctx, w, func(ctx context.Context, req discovery.Request) discovery.Reply {
		c.p.mu.Lock()
		c.p.asked++
		blank := c.p.blank
		c.p.mu.Unlock()
		if blank {
			return discovery.Reply{Answer: discovery.Stale, Reason: "a link that is not known"}
		}
		return h(ctx, req)
	})
}

func (p *housed) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *housed) register(t *testing.T) {
	t.Helper()
	if _, err := p.reg.Register(t.Context(), p.records); err != nil {
		t.Fatal(err)
	}
}

func (p *housed) end(t *testing.T) {
	closeAll(t, p.del, p.worker)
	checkZero(t, p.name, p.worker.Stats())
}

// forget has a process know no link any more. Of its lanes the frontend hears nothing until reveal.
func (p *housed) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blank = true
}

// reveal has the lanes of a process that knows no link die. It knows the next one.
func (h *house) reveal(t *testing.T, p *housed) {
	t.Helper()
	h.renew(t, p, false)
}

// renew has the lanes of a process die. blank says whether it does not know the next link either.
func (h *house) renew(t *testing.T, p *housed, blank bool) {
	t.Helper()
	var lanes []*memory.Conn
	for _, c := range h.net.Conns() {
		if c.Info().Remote.String() == p.bind {
			c.Peer().Stall() // a Worker that is closed says so
			lanes = append(lanes, c)
		}
	}
	if len(lanes) == 0 {
		t.Fatalf("no lane to %s", p.name)
	}
	engines := len(p.records)
	h.net.Silence(p.bind)
	p.end(t)
	p.live(t, h.hub, engines)
	h.net.Allow(p.bind)
	p.mu.Lock()
	p.blank = blank
	p.mu.Unlock()
	for _, c := range lanes {
		c.Cut(io.ErrUnexpectedEOF)
	}
}

// ask makes a request and takes the whole answer.
func (h *house) ask(ctx context.Context, req responseplane.Request) (process string, retries int, err error) {
	req.Model = model
	r, err := h.front.Open(ctx, req)
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	if rec, err := r.Next(ctx); err != nil || string(rec) != "token" {
		return "", 0, fmt.Errorf("record %q: %w", rec, err)
	}
	if _, err := r.Next(ctx); err != io.EOF {
		return "", 0, fmt.Errorf("end: %w", err)
	}
	return r.NodeName(), r.Retries(), nil
}

// avoided are the workers that are.
func (h *house) avoided() (ids []string) {
	for _, w := range h.front.Workers() {
		if w.Avoided {
			ids = append(ids, w.ID)
		}
	}
	return ids
}
