package main

import (
	"context"
	"os"
	"sync"

	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/transport"
)

// sabotage gives the engines what failures of lanes and of the process need, where such were asked for. Without them no
// lane is touched.
func (p *process) sabotage() {
	if p.s.injects(mock.FailLane) {
		c := newCutter()
		for i, t := range p.transports {
			p.transports[i] = cutTransport{t, c}
		}
		p.s.engine.CloseLane = c.cut
		p.onClose(c.close)
	}
	if p.s.injects(mock.FailKill) {
		log := p.log
		p.s.engine.Kill = func() {
			log.Warn("injected failure: this process is killed")
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Kill() // nothing runs after it; where it fails, the process goes on
			}
		}
	}
}

// cutter knows the accepted lanes of the process and closes one when it is told to, from a goroutine of its own: an
// engine must not wait for that.
type cutter struct {
	kick chan struct{} // capacity 1: cuts that come together are one
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	lanes map[*cutConn]struct{}
}

func newCutter() *cutter {
	ctx, stop := context.WithCancel(context.Background())
	c := &cutter{kick: make(chan struct{}, 1), stop: stop, lanes: make(map[*cutConn]struct{})}
	c.wg.Go(func() { c.run(ctx) }) // ends with close, which joins it
	return c
}

// cut closes a lane, any one. It does not wait.
func (c *cutter) cut() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

func (c *cutter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		}
		if lane := c.any(); lane != nil {
			_ = lane.Close() // the plane finds the lane dead and says so
		}
	}
}

func (c *cutter) any() *cutConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	for lane := range c.lanes {
		return lane
	}
	return nil
}

func (c *cutter) close() {
	c.stop()
	c.wg.Wait()
}

// adopt returns conn as a lane that the cutter knows.
func (c *cutter) adopt(conn transport.Conn) transport.Conn {
	lane := &cutConn{Conn: conn, c: c}
	c.mu.Lock()
	c.lanes[lane] = struct{}{}
	c.mu.Unlock()
	if try, ok := conn.(transport.TryWriter); ok {
		return cutTryConn{lane, try}
	}
	return lane
}

func (c *cutter) forget(lane *cutConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lanes, lane)
}

// cutTransport is a transport whose accepted lanes the cutter knows.
type cutTransport struct {
	transport.Transport
	c *cutter
}

func (t cutTransport) Listen(ctx context.Context, bind string, n int) (transport.Listener, error) {
	l, err := t.Transport.Listen(ctx, bind, n)
	if err != nil {
		return nil, err
	}
	return cutListener{l, t.c}, nil
}

type cutListener struct {
	transport.Listener
	c *cutter
}

func (l cutListener) Accept(ctx context.Context) (transport.Conn, error) {
	conn, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return l.c.adopt(conn), nil
}

type cutConn struct {
	transport.Conn
	c *cutter
}

func (c *cutConn) Close() error {
	c.c.forget(c)
	return c.Conn.Close()
}

// cutTryConn keeps what a lane of plane tcp can do beyond others.
type cutTryConn struct {
	*cutConn
	transport.TryWriter
}
