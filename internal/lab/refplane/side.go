package refplane

import (
	"context"
	"errors"
	"sync"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// side is what frontend and worker have in common: connections, which it closes, and goroutines, which it joins.
type side struct {
	cfg      Config
	stats    counters
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	listener transport.Listener // set before the side is in use

	mu     sync.Mutex
	conns  map[transport.Conn]bool
	closed bool
}

// init sets the side up. Close ends it.
func (s *side) init(cfg Config) {
	s.cfg, s.conns = cfg.withDefaults(), map[transport.Conn]bool{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
}

// listen opens the side and serves each connection that comes, in a goroutine of its own; they end with Close.
func (s *side) listen(ctx context.Context, serve func(transport.Conn)) error {
	l, err := s.cfg.Transport.Listen(ctx, s.cfg.BindAddr, 1)
	if err != nil {
		return err
	}
	s.listener = l
	s.wg.Go(func() { // ends with the listener
		for {
			conn, err := l.Accept(s.ctx)
			if err != nil || s.adopt(conn) != nil {
				return // it was closed
			}
			s.wg.Go(func() { serve(conn) }) // ends with the connection
		}
	})
	return nil
}

// adopt keeps a connection for Close. After Close it closes the connection.
func (s *side) adopt(conn transport.Conn) error {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.conns[conn] = true
	}
	s.mu.Unlock()
	if closed {
		return errors.Join(responseplane.ErrClosed, conn.Close())
	}
	s.stats.conns.Add(1)
	return nil
}

// drop closes a connection that has ended.
func (s *side) drop(conn transport.Conn) {
	_ = conn.Close() // its bytes have been read; a failure has no one to hear of it
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
	s.stats.conns.Add(-1)
}

// Close ends all connections and joins their goroutines; open responses end as lost. Idempotent.
func (s *side) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	var conns []transport.Conn
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	s.cancel()
	var errs []error
	if s.listener != nil && !closed {
		errs = append(errs, s.listener.Close())
	}
	for _, c := range conns {
		_ = c.Close() // its reader may have closed it before
	}
	s.wg.Wait()
	return errors.Join(errs...)
}
