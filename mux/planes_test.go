package mux

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

// allPlanes are the planes that whole links are tested over.
var allPlanes = []string{transport.PlaneMemory, transport.PlaneTCP, transport.PlaneTLS, transport.PlaneQUIC}

// newNode makes one node's transport on a plane with sockets, and its identity.
func newNode(t testing.TB, plane string) (transport.Transport, transport.NodeID) {
	t.Helper()
	return newNodeWith(t, plane, quic.Config{})
}

func newNodeWith(t testing.TB, plane string, cfg quic.Config) (transport.Transport, transport.NodeID) {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	var tr transport.Transport
	switch plane {
	case transport.PlaneQUIC:
		cfg.Identity = id
		tr, err = quic.New(cfg)
	default:
		tr, err = tcp.New(tcp.Config{Identity: id, TLS: plane == transport.PlaneTLS})
	}
	if err != nil {
		t.Fatal(err)
	}
	return tr, id.ID
}

// newPlanePair is newPair over any plane, with a tap on each side so that a test can see and kill lanes.
func newPlanePair(t testing.TB, plane string, cfg pairConfig) (p *pair, front, work *tap) {
	t.Helper()
	if plane == transport.PlaneMemory {
		ids := [2]transport.NodeID{{0xf}, {0x3}}
		n := memory.NewNetwork(cfg.mem)
		front, work = newTap(n.Transport(ids[0])), newTap(n.Transport(ids[1]))
		return connectPair(t, cfg, n, front, work, "worker:0", ids), front, work
	}
	a, frontID := newNodeWith(t, plane, cfg.quic)
	b, workID := newNodeWith(t, plane, cfg.quic)
	front, work = newTap(a), newTap(b)
	return connectPair(t, cfg, nil, front, work, "127.0.0.1:0", [2]transport.NodeID{frontID, workID}), front, work
}

// tap is a transport that remembers its lanes. It passes everything on, TryWrite too where the plane has it.
type tap struct {
	transport.Transport

	mu    sync.Mutex
	conns []*tapConn

	onWrite atomic.Pointer[func(p []byte)] // sees each write before it begins
	onTry   atomic.Pointer[func(p []byte)] // sees each inline write after it
}

func (t *tap) see(p []byte) {
	if fn := t.onWrite.Load(); fn != nil && len(p) > 0 {
		(*fn)(p)
	}
}

func newTap(t transport.Transport) *tap { return &tap{Transport: t} }

// Dial implements transport.Transport.
func (t *tap) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	c, err := t.Transport.Dial(ctx, req)
	if err != nil {
		return nil, err
	}
	return t.wrap(c), nil
}

// Listen implements transport.Transport.
func (t *tap) Listen(ctx context.Context, bind string, n int) (transport.Listener, error) {
	l, err := t.Transport.Listen(ctx, bind, n)
	if err != nil {
		return nil, err
	}
	return tapListener{l, t}, nil
}

type tapListener struct {
	transport.Listener
	tap *tap
}

// Accept implements transport.Listener.
func (l tapListener) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return l.tap.wrap(c), nil
}

func (t *tap) wrap(c transport.Conn) transport.Conn {
	w := &tapConn{Conn: c, tap: t}
	t.mu.Lock()
	t.conns = append(t.conns, w)
	t.mu.Unlock()
	if try, ok := c.(transport.TryWriter); ok {
		return tapTryConn{w, try}
	}
	return w
}

// open are the lanes that are not closed yet.
func (t *tap) open() []*tapConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.conns)
}

type tapConn struct {
	transport.Conn
	tap    *tap
	silent atomic.Bool
}

// mute has nothing go through any more, either way, and says so to nobody: a host that has lost its network.
func (c *tapConn) mute() { c.silent.Store(true) }

// Read implements transport.Conn.
func (c *tapConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.silent.Load() {
			return n, err
		}
	}
}

// Write implements transport.Conn.
func (c *tapConn) Write(p []byte) (int, error) {
	c.tap.see(p)
	if c.silent.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// WriteBuffers implements transport.Conn.
func (c *tapConn) WriteBuffers(bufs [][]byte) error {
	c.tap.see(slices.Concat(bufs...))
	if c.silent.Load() {
		return nil
	}
	return c.Conn.WriteBuffers(bufs)
}

// Close implements transport.Conn.
func (c *tapConn) Close() error {
	c.tap.mu.Lock()
	c.tap.conns = slices.DeleteFunc(c.tap.conns, func(o *tapConn) bool { return o == c })
	c.tap.mu.Unlock()
	return c.Conn.Close()
}

// kill ends the lane as a fault would, behind the back of the mux.
func (c *tapConn) kill() { _ = c.Conn.Close() }

type tapTryConn struct {
	*tapConn
	try transport.TryWriter
}

// TryWrite implements transport.TryWriter. The tap sees what was taken: the rest comes again through Write.
func (c tapTryConn) TryWrite(p []byte) (int, error) {
	if c.silent.Load() {
		return len(p), nil
	}
	n, err := c.try.TryWrite(p)
	c.tried(p[:n])
	return n, err
}

// TryWriteBuffers implements transport.TryWriter.
func (c tapTryConn) TryWriteBuffers(bufs [][]byte) (int, error) {
	if c.silent.Load() {
		all := 0
		for _, b := range bufs {
			all += len(b)
		}
		return all, nil
	}
	n, err := c.try.TryWriteBuffers(bufs)
	c.tried(slices.Concat(bufs...)[:n])
	return n, err
}

func (c tapTryConn) tried(p []byte) {
	if fn := c.tap.onTry.Load(); fn != nil {
		(*fn)(p)
	}
	c.tap.see(p)
}
