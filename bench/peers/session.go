package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

// session is a connection between a frontend and a worker process that has a stream for each response.
type session interface {
	Open(ctx context.Context) (io.ReadWriteCloser, error)   // frontend
	Accept(ctx context.Context) (io.ReadWriteCloser, error) // worker
	Close() error
}

type listener interface {
	Accept(ctx context.Context) (session, error)
	Address() string
	Close() error
}

// carrier makes sessions.
type carrier struct {
	listen func(ctx context.Context) (listener, error)
	dial   func(ctx context.Context, address string) (session, error)
}

func (c carrier) peer(name string) planebench.Peer {
	return planebench.Peer{
		Name: name, Deliveries: pulled(),
		Worker: func(cfg planebench.PeerConfig, serve func([]byte, planebench.PeerWriter) error) (planebench.PeerWorker,
			error) {
			w := &sessionWorker{carrier: c, cfg: cfg, serve: serve, open: map[io.Closer]bool{}}
			w.ctx, w.cancel = context.WithCancel(context.Background())
			return w, nil
		},
		Frontend: func(planebench.PeerConfig) (planebench.PeerFrontend, error) {
			return &sessionFrontend{carrier: c, sessions: map[int]session{}}, nil
		},
	}
}

// sessionWorker writes each response to a stream of its own, from a goroutine of its own.
type sessionWorker struct {
	carrier carrier
	cfg     planebench.PeerConfig
	serve   func([]byte, planebench.PeerWriter) error
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	ln      listener

	mu     sync.Mutex
	open   map[io.Closer]bool // sessions and streams
	closed bool
}

func (w *sessionWorker) Listen(ctx context.Context) (string, error) {
	ln, err := w.carrier.listen(ctx)
	if err != nil {
		return "", err
	}
	w.ln = ln
	w.wg.Go(func() { // ends with the listener
		for {
			s, err := ln.Accept(w.ctx)
			if err != nil {
				return
			}
			if !w.adopt(s) {
				return
			}
			w.wg.Go(func() { w.accept(s) })
		}
	})
	return ln.Address(), nil
}

// adopt keeps what Close must close.
func (w *sessionWorker) adopt(c io.Closer) bool {
	w.mu.Lock()
	closed := w.closed
	if !closed {
		w.open[c] = true
	}
	w.mu.Unlock()
	if closed {
		_ = c.Close() // nobody waits for it
	}
	return !closed
}

func (w *sessionWorker) drop(c io.Closer) {
	_ = c.Close() // it has ended: a failure has nobody to hear of it
	w.mu.Lock()
	delete(w.open, c)
	w.mu.Unlock()
}

// accept takes the streams of a session until it ends.
func (w *sessionWorker) accept(s session) {
	defer w.drop(s)
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		stream, err := s.Accept(w.ctx)
		if err != nil {
			return
		}
		if !w.adopt(stream) {
			return
		}
		streams.Go(func() {
			defer w.drop(stream)
			if err := w.respond(stream); err != nil && w.ctx.Err() == nil {
				w.cfg.Log.Error("a response has failed", "error", err)
			}
		})
	}
}

// respond reads a request and writes what its engine makes.
func (w *sessionWorker) respond(stream io.ReadWriter) error {
	var n [1]byte
	if _, err := io.ReadFull(stream, n[:]); err != nil {
		return err
	}
	request := make([]byte, n[0])
	if _, err := io.ReadFull(stream, request); err != nil {
		return err
	}
	q := newQueue()
	if err := w.serve(request, q); err != nil {
		return err
	}
	for {
		frames, last, err := q.take(w.ctx.Done())
		if err != nil {
			return err
		}
		if _, err := stream.Write(frames); err != nil {
			q.fail(err)
			return err
		}
		if last {
			return nil
		}
	}
}

// Flush does nothing: each record has woken the goroutine of its response.
func (w *sessionWorker) Flush() {}

func (w *sessionWorker) Close() error {
	w.cancel()
	var errs []error
	if w.ln != nil {
		errs = append(errs, w.ln.Close())
	}
	w.mu.Lock()
	w.closed = true
	open := w.open
	w.open = map[io.Closer]bool{}
	w.mu.Unlock()
	for c := range open {
		_ = c.Close() // its goroutine may have closed it before
	}
	w.wg.Wait()
	return errors.Join(errs...)
}

// sessionFrontend reads each response from a stream of its own.
type sessionFrontend struct {
	carrier carrier

	mu       sync.Mutex
	sessions map[int]session // by worker process
}

func (f *sessionFrontend) Connect(ctx context.Context, worker int, address string) error {
	s, err := f.carrier.dial(ctx, address)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.sessions[worker] = s
	f.mu.Unlock()
	return nil
}

func (f *sessionFrontend) Open(ctx context.Context, worker int, request []byte) (planebench.PeerResponse, error) {
	f.mu.Lock()
	s := f.sessions[worker]
	f.mu.Unlock()
	if s == nil || len(request) > 255 {
		return nil, fmt.Errorf("a request of %d bytes to worker process %d", len(request), worker)
	}
	stream, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := stream.Write(append([]byte{byte(len(request))}, request...)); err != nil {
		_ = stream.Close()
		return nil, err
	}
	return newFrameReader(stream), nil
}

func (f *sessionFrontend) Close() error {
	f.mu.Lock()
	sessions := f.sessions
	f.sessions = nil
	f.mu.Unlock()
	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
