package responseplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	discoverymemory "github.com/laneway-ai/laneway/discovery/memory"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

const (
	model    = "tiny"
	patience = 60 * time.Second // for what must happen, on a loaded machine
)

// network makes the transports of one test's nodes.
type network func(t testing.TB, id *transport.Identity) transport.Transport

// planes are what every test of this package runs over.
func planes() map[string]func() network {
	return map[string]func() network{
		transport.PlaneMemory: func() network {
			n := memory.NewNetwork(memory.Config{TryWrite: true})
			return func(_ testing.TB, id *transport.Identity) transport.Transport { return n.Transport(id.ID) }
		},
		transport.PlaneTCP: func() network {
			return func(t testing.TB, id *transport.Identity) transport.Transport {
				tr, err := tcp.New(tcp.Config{Identity: id})
				if err != nil {
					t.Fatal(err)
				}
				return tr
			}
		},
		transport.PlaneQUIC: func() network {
			return func(t testing.TB, id *transport.Identity) transport.Transport {
				tr, err := quic.New(quic.Config{Identity: id, RecvBuffer: 256 << 10, SendBuffer: 256 << 10})
				if err != nil {
					t.Fatal(err)
				}
				return tr
			}
		},
	}
}

// onPlanes runs a test over every plane.
func onPlanes(t *testing.T, test func(t *testing.T, net network)) {
	for name, make := range planes() {
		t.Run(name, func(t *testing.T) { test(t, make()) })
	}
}

// rig is a frontend that follows a registry, and worker processes with one worker each.
type rig struct {
	net   network
	hub   *discoverymemory.Hub
	reg   discovery.Registry
	front *responseplane.Frontend
	gate  *gate // of the frontend's transport
	procs []*process
}

// process is one worker process with one worker on it.
type process struct {
	id      string
	worker  *responseplane.Worker
	evil    *evil
	reg     *discoverymemory.Registry
	del     *discoverymemory.Deliverer
	service discovery.Service

	handle atomic.Pointer[responseplane.Handler]
	seen   sync.Map // request id -> its *Writer
	count  atomic.Int64
}

// rigConfig changes a rig from its defaults.
type rigConfig struct {
	front   func(*responseplane.FrontendConfig)
	worker  func(*responseplane.WorkerConfig)
	workers int // 0 = 1
}

func newRig(t *testing.T, net network, cfg rigConfig) *rig {
	t.Helper()
	hub, err := discoverymemory.New(discoverymemory.Config{MaxPayload: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{net: net, hub: hub}
	registry, err := hub.Registry("test")
	if err != nil {
		t.Fatal(err)
	}
	deliverer, err := hub.Deliverer("test")
	if err != nil {
		t.Fatal(err)
	}
	r.reg = registry
	id := identity(t)
	r.gate = &gate{Transport: net(t, id)}
	front := responseplane.FrontendConfig{
		Identity: id, Name: "front", Transports: []transport.Transport{r.gate}, Deliverer: deliverer,
		ResumeTimeout: time.Second,
		KeepVanished:  -1, // TestVanished is about it
	}
	if cfg.front != nil {
		cfg.front(&front)
	}
	if r.front, err = responseplane.NewFrontend(front); err != nil {
		t.Fatal(err)
	}
	following := make(chan error, 1)
	ctx, unfollow := context.WithCancel(context.Background())
	go func() { following <- r.front.Follow(ctx, registry) }()
	t.Cleanup(func() {
		r.settled(t)
		unfollow()
		if err := <-following; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow ended with %v, expected the end of its context", err)
		}
		closeAll(t, r.front, deliverer, registry, r.gate)
		checkZero(t, "frontend", r.front.Stats())
	})
	for range max(cfg.workers, 1) {
		r.start(t, cfg)
	}
	r.reachable(t, max(cfg.workers, 1))
	return r
}

// start starts one more worker process, serves and registers it.
func (r *rig) start(t *testing.T, cfg rigConfig) *process {
	t.Helper()
	p := r.unregistered(t, cfg)
	p.serve(t)
	p.register(t)
	return p
}

// unregistered starts a worker process that listens and does no more.
func (r *rig) unregistered(t *testing.T, cfg rigConfig) *process {
	t.Helper()
	p := &process{id: fmt.Sprintf("w%d", len(r.procs))}
	r.procs = append(r.procs, p)
	id := identity(t)
	p.evil = &evil{Transport: r.net(t, id)}
	wc := responseplane.WorkerConfig{
		Identity: id, Name: "process-" + p.id, Transports: []transport.Transport{p.evil}, BindAddr: "127.0.0.1:0",
		ServerEndpoints: 2,
	}
	if cfg.worker != nil {
		cfg.worker(&wc)
	}
	var err error
	if p.worker, err = responseplane.NewWorker(wc); err != nil {
		t.Fatal(err)
	}
	if err := p.worker.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.reg, err = r.hub.Registry("test"); err != nil {
		t.Fatal(err)
	}
	if p.del, err = r.hub.Deliverer("test"); err != nil {
		t.Fatal(err)
	}
	p.onRequest(func(_ discovery.Request, w *responseplane.Writer) discovery.Reply {
		go func() { // joined by the response's end, which every test waits for
			if w.Send(context.Background(), []byte("token")) == nil {
				_ = w.Complete([]byte("trailer"))
			}
		}()
		return discovery.Reply{Answer: discovery.Accepted}
	})
	t.Cleanup(func() {
		closeAll(t, p.del, p.reg, p.worker, p.evil)
		checkZero(t, p.id, p.worker.Stats())
	})
	return p
}

func (p *process) record() discovery.Worker {
	return discovery.Worker{ID: p.id, Models: []string{model}, Node: p.worker.Descriptor()}
}

// onRequest sets what the worker does with requests.
func (p *process) onRequest(h responseplane.Handler) { p.handle.Store(&h) }

// accept has the worker take requests and leave their Writers to the test.
func (p *process) accept() {
	p.onRequest(func(discovery.Request, *responseplane.Writer) discovery.Reply {
		return discovery.Reply{Answer: discovery.Accepted}
	})
}

// answer has the worker turn requests away.
func (p *process) answer(a discovery.Answer) {
	p.onRequest(func(discovery.Request, *responseplane.Writer) discovery.Reply {
		return discovery.Reply{Answer: a, Reason: "the test says " + a.String()}
	})
}

func (p *process) serve(t *testing.T) {
	t.Helper()
	var err error
	p.service, err = p.worker.Serve(t.Context(), p.del, p.record(),
		func(req discovery.Request, w *responseplane.Writer) discovery.Reply {
			p.count.Add(1)
			p.seen.Store(req.ID, w)
			return (*p.handle.Load())(req, w)
		})
	if err != nil {
		t.Fatal(err)
	}
}

func (p *process) register(t *testing.T) discovery.Registration {
	t.Helper()
	reg, err := p.reg.Register(t.Context(), []discovery.Worker{p.record()})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// writer waits for the Writer of a request.
func (p *process) writer(t *testing.T, request string) *responseplane.Writer {
	t.Helper()
	var w any
	eventually(t, "request "+request+" at worker "+p.id, func() bool {
		var ok bool
		w, ok = p.seen.Load(request)
		return ok
	})
	return w.(*responseplane.Writer)
}

// reachable waits until the frontend can reach n workers.
func (r *rig) reachable(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d reachable workers", n), func() bool {
		_, reachable := r.front.Counts()
		return reachable == n
	})
}

// mint mints a response from process p for a request path of the test's own.
func (r *rig) mint(t *testing.T, p *process, o responseplane.MintOptions) *responseplane.Response {
	t.Helper()
	res, err := r.front.Mint(t.Context(), p.nodeID(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Close() })
	return res
}

// open is both ends of a stream with its first record taken.
func (r *rig) open(t *testing.T, p *process) (*responseplane.Response, *responseplane.Writer) {
	t.Helper()
	res := r.mint(t, p, responseplane.MintOptions{})
	w, err := p.worker.Attach(res.Terms())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Send(t.Context(), []byte("first")); err != nil {
		t.Fatal(err)
	}
	if rec, err := res.Next(t.Context()); err != nil || string(rec) != "first" {
		t.Fatalf("first record: %q, %v", rec, err)
	}
	return res, w
}

// settled waits until both sides hold nothing of any response.
func (r *rig) settled(t *testing.T) {
	t.Helper()
	eventually(t, "no response is left", func() bool {
		st := r.front.Stats()
		return st.OpenStreams == 0 && st.ClosingSlots == 0
	})
	for _, p := range r.procs {
		eventually(t, "no stream is left at "+p.id, func() bool {
			st := p.worker.Stats()
			return st.OpenStreams == 0 && st.LogBytes == 0 && st.CommittedBytes == 0
		})
	}
	eventually(t, "no worker counts an open response", func() bool {
		for _, w := range r.front.Workers() {
			if w.Open != 0 {
				return false
			}
		}
		return true
	})
}

// checkZero is what a closed side must come to.
func checkZero(t *testing.T, name string, st responseplane.Stats) {
	t.Helper()
	var ended uint64
	for _, n := range st.StreamsEnded {
		ended += n
	}
	if ended != st.StreamsOpened {
		t.Errorf("%s: %d streams were opened and %d ended: %v", name, st.StreamsOpened, ended, st.StreamsEnded)
	}
	if st.OpenStreams != 0 || st.ClosingSlots != 0 || st.LogBytes != 0 || st.CommittedBytes != 0 ||
		st.BufferedBytes != 0 || st.Links != 0 {
		t.Errorf("%s after Close: open %d, closing %d, replay %d, committed %d, buffered %d, links %d; expected zeros",
			name,
			st.OpenStreams, st.ClosingSlots, st.LogBytes, st.CommittedBytes, st.BufferedBytes, st.Links)
	}
}

func closeAll(t *testing.T, all ...interface{ Close() error }) {
	t.Helper()
	for _, c := range all {
		for range 2 { // Close is idempotent
			if err := c.Close(); err != nil {
				t.Errorf("close %T: %v", c, err)
			}
		}
	}
}

func identity(t testing.TB) *transport.Identity {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// eventually polls for what no event tells.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// closed waits for a channel to be closed.
func closed(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("timed out waiting for: %s", what)
	}
}

// gate is a frontend's transport whose network can be cut.
type gate struct {
	transport.Transport
	mu    sync.Mutex
	shut  bool
	conns []transport.Conn
}

var errCut = errors.New("the test has cut the network")

func (g *gate) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	c, err := g.Transport.Dial(ctx, req)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		_ = c.Close()
		return nil, errCut
	}
	g.conns = append(g.conns, c)
	return c, nil
}

// cut ends every lane and lets no new one come up.
func (g *gate) cut() {
	g.mu.Lock()
	g.shut = true
	conns := g.conns
	g.conns = nil
	g.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// evil is a worker's transport that breaks the protocol when it is told to.
type evil struct {
	transport.Transport
	armed atomic.Bool
}

func (e *evil) Listen(ctx context.Context, bind string, n int) (transport.Listener, error) {
	l, err := e.Transport.Listen(ctx, bind, n)
	if err != nil {
		return nil, err
	}
	return &evilListener{Listener: l, evil: e}, nil
}

type evilListener struct {
	transport.Listener
	evil *evil
}

func (l *evilListener) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	e := &evilConn{Conn: c, evil: l.evil}
	if try, ok := c.(transport.TryWriter); ok {
		return &evilTryConn{evilConn: e, try: try}, nil
	}
	return e, nil
}

type evilConn struct {
	transport.Conn
	evil *evil
}

// noSuchKind is a record of a kind that does not exist.
var noSuchKind = []byte{0x7f, 0, 0, 0, 0, 0, 1, 0}

func (c *evilConn) Write(p []byte) (int, error) {
	if c.evil.armed.Load() {
		if _, err := c.Conn.Write(noSuchKind); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

func (c *evilConn) WriteBuffers(bufs [][]byte) error {
	_, err := c.Write(slices.Concat(bufs...))
	return err
}

type evilTryConn struct {
	*evilConn
	try transport.TryWriter
}

func (c *evilTryConn) TryWrite(p []byte) (int, error) {
	if c.evil.armed.Load() {
		return c.try.TryWrite(append(noSuchKind[:len(noSuchKind):len(noSuchKind)], p...))
	}
	return c.try.TryWrite(p)
}

func (c *evilTryConn) TryWriteBuffers(bufs [][]byte) (int, error) {
	return c.TryWrite(slices.Concat(bufs...))
}

// nodeID is the process's node.
func (p *process) nodeID() responseplane.NodeID {
	id, _ := transport.ParseNodeID(p.worker.Descriptor().ID) // it is a descriptor of our own making
	return id
}
