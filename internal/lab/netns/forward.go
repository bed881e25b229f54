package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/program/seldom"
)

const (
	// maxForwarded bounds the connections of one Forwarder; the next one waits in the kernel's queue until one has
	// ended.
	maxForwarded = 4096
	// forwardDial bounds how long the server may take to accept.
	forwardDial = 5 * time.Second
	// acceptPause is waited for after an accept that failed, such as for want of descriptors.
	acceptPause = 100 * time.Millisecond
)

// Forwarder offers a TCP server of this process's own network inside a namespace.
type Forwarder struct {
	l      net.Listener
	target string
	log    *slog.Logger
	slots  chan struct{}

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Forward listens on an address of the node, any port, and passes each connection on to target (host:port), which is
// dialled from the caller's network. A nil log discards. Close ends it.
func (d *Node) Forward(ctx context.Context, target string, log *slog.Logger) (*Forwarder, error) {
	l, err := d.Listen(ctx, "tcp", net.JoinHostPort(d.Addr4.String(), "0"))
	if err != nil {
		return nil, fmt.Errorf("netns: offer %s in %s: %w", target, d.Name, err)
	}
	f := &Forwarder{l: l, target: target, log: seldom.Logger(log), slots: make(chan struct{}, maxForwarded)}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.wg.Go(f.accept)
	return f, nil
}

// Addr is where the server is offered.
func (f *Forwarder) Addr() string { return f.l.Addr().String() }

// Open is how many connections are passed on at present.
func (f *Forwarder) Open() int { return len(f.slots) }

// Close ends the listener and all connections, and joins them. Idempotent.
func (f *Forwarder) Close() error {
	f.stop()
	err := f.l.Close()
	f.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (f *Forwarder) accept() {
	for {
		select {
		case f.slots <- struct{}{}:
		case <-f.ctx.Done():
			return
		}
		c, err := f.l.Accept()
		if err != nil {
			<-f.slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			f.log.Warn("a connection could not be accepted", "for", f.target, "error", err)
			select {
			case <-time.After(acceptPause):
			case <-f.ctx.Done():
				return
			}
			continue
		}
		f.wg.Go(func() {
			defer func() { <-f.slots }()
			f.pass(c)
		})
	}
}

// pass copies both ways until both have ended, one has failed, or Close.
func (f *Forwarder) pass(c net.Conn) {
	defer c.Close()
	d := net.Dialer{Timeout: forwardDial}
	s, err := d.DialContext(f.ctx, "tcp", f.target)
	if err != nil {
		if f.ctx.Err() == nil {
			f.log.Warn("a server does not answer", "server", f.target, "error", err)
		}
		return
	}
	defer s.Close()
	cut := func() {
		c.Close()
		s.Close()
	}
	defer context.AfterFunc(f.ctx, cut)()
	var wg sync.WaitGroup
	wg.Go(func() { copyHalf(s, c, cut) })
	wg.Go(func() { copyHalf(c, s, cut) })
	wg.Wait()
}

// copyHalf copies one direction. Its orderly end is passed on; a failure cuts both.
func copyHalf(to, from net.Conn, cut func()) {
	_, err := io.Copy(to, from)
	if err == nil {
		if h, ok := to.(interface{ CloseWrite() error }); ok {
			err = h.CloseWrite()
		}
	}
	if err != nil {
		cut()
	}
}
