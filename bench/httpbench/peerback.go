package httpbench

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

// peerBackend puts a peer behind the HTTP side's interface. Requests go to the worker processes in turn.
type peerBackend struct {
	plane   planebench.PeerFrontend
	name    string
	sink    bool
	workers int
	passes  []pass // by worker process, of a sink
	next    atomic.Uint64
}

// newPeerBackend connects to the worker processes.
func newPeerBackend(ctx context.Context, c *child) (_ *peerBackend, err error) {
	b := &peerBackend{name: c.arm.Name, sink: c.arm.Sink, workers: len(c.cfg.Workers),
		passes: make([]pass, len(c.cfg.Workers))}
	cfg := c.peerConfig()
	var t *passTransport
	if cfg.Transport != nil {
		t = &passTransport{Transport: cfg.Transport}
		cfg.Transport = t
	}
	if b.plane, err = c.arm.Peer.Frontend(cfg); err != nil {
		return nil, err
	}
	for i, w := range c.cfg.Workers {
		if t != nil {
			t.next = &b.passes[i]
		}
		if err := b.plane.Connect(ctx, i, w.Address); err != nil {
			return nil, errors.Join(err, b.plane.Close())
		}
	}
	return b, nil
}

func (b *peerBackend) Models() []string { return []string{model} }
func (b *peerBackend) Ready() error     { return nil }

// Open implements frontend.Backend.
func (b *peerBackend) Open(ctx context.Context, c frontend.Call) (frontend.Stream, error) {
	i := int((b.next.Add(1) - 1) % uint64(b.workers))
	o := origin{worker: workerID(i), plane: b.name}
	r, err := b.plane.Open(ctx, i, c.Payload)
	if err != nil {
		return nil, o.lost(err)
	}
	if b.sink {
		return b.push(ctx, o, r, &b.passes[i])
	}
	// a peer's NextBatch may not look at its context
	s := &peerPulled{origin: o, r: r, unhook: context.AfterFunc(ctx, r.Kill)}
	s.batch, s.err = r.NextBatch(ctx)
	switch {
	case s.err == nil:
		s.kept = true
		return s, nil
	case s.err == io.EOF:
		return s, nil
	}
	err = s.err
	_ = s.Close() // it has ended
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, o.lost(err)
}

// push has the reader of a connection write the response.
func (b *peerBackend) push(ctx context.Context, o origin, r planebench.PeerResponse, p *pass) (frontend.Stream, error) {
	sink, ok := r.(planebench.PeerSink)
	if !ok {
		return nil, errors.Join(o.lost(errors.New("httpbench: the peer has no sink")), r.Close())
	}
	s := newPushed(o, p)
	s.ended = func() { _ = r.Close() } // gives its slot back
	sink.OnRecords(func(recs [][]byte, err error) bool {
		if err == io.EOF {
			s.complete(r.Trailer(), err)
		} else {
			s.take(recs, err)
		}
		return true
	})
	if err := s.first(ctx); err != nil {
		_ = s.Close() // only gives it up
		return nil, err
	}
	return s, nil
}

func (b *peerBackend) planes() map[string]uint64 { return nil }

func (b *peerBackend) Close() error { return b.plane.Close() }

// peerPulled is a peer's response that the request's goroutine reads.
type peerPulled struct {
	origin
	r      planebench.PeerResponse
	unhook func() bool
	batch  [][]byte // of Open
	kept   bool     // nobody has taken batch
	err    error
	closed bool
}

// NextBatch implements frontend.Stream.
func (s *peerPulled) NextBatch(ctx context.Context) ([][]byte, error) {
	if s.kept {
		s.kept = false
		return s.batch, nil
	}
	if s.err != nil {
		return nil, s.err
	}
	recs, err := s.r.NextBatch(ctx)
	if err != nil {
		if s.err = s.lost(err); ctx.Err() != nil && err != io.EOF {
			s.err = ctx.Err()
		}
		return nil, s.err
	}
	return recs, nil
}

func (s *peerPulled) Trailer() []byte { return s.r.Trailer() }
func (s *peerPulled) Stop()           { s.r.Kill() }
func (s *peerPulled) Kill()           { s.r.Kill() }

// Close implements frontend.Stream.
func (s *peerPulled) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.unhook()
	return s.r.Close()
}
