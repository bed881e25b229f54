package mux

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// maxOpenTerms bounds the open terms that a FrontendNode waits for.
const maxOpenTerms = 65536

// OpenStream is a stream whose worker is not chosen yet: its terms travel inside the request, and the worker that
// gets it claims the stream on its link. Close it in the end, whatever came of it: until then it counts among those
// that wait.
type OpenStream struct {
	recv  *FrontendNode
	id    [16]byte
	terms []byte
	opts  MintOptions
	by    time.Time // when TimeLeft is over; zero: none

	mu      sync.Mutex
	stream  *InStream
	err     error
	claimed chan struct{} // closed when stream or err is set
}

// MintOpen makes open terms. It fails with ErrBusy, ErrDraining or ErrClosed.
func (r *FrontendNode) MintOpen(o MintOptions) (*OpenStream, error) {
	s := &OpenStream{recv: r, opts: o, claimed: make(chan struct{})}
	_, _ = rand.Read(s.id[:]) // never fails (crypto/rand)
	if o.TimeLeft > 0 && o.TimeLeft < forever {
		s.by = time.Now().Add(o.TimeLeft)
	}
	s.terms = wire.AppendOpenTerms(nil, &wire.OpenTerms{Frontend: [16]byte(r.cfg.ID), ID: s.id, TimeLeft: o.TimeLeft})
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closing:
		return nil, ErrClosed
	case r.draining:
		return nil, ErrDraining
	case len(r.unclaimed) >= maxOpenTerms:
		return nil, fmt.Errorf("%w: %d requests wait for their worker", ErrBusy, len(r.unclaimed))
	}
	r.unclaimed[s.id] = s
	return s, nil
}

// Terms are what the request must carry. They must not be changed.
func (s *OpenStream) Terms() []byte { return s.terms }

// Wait waits until a worker has claimed the stream. A ctx that ends changes nothing: Wait again or Close. It fails with
// ErrClosed once Close was called or the FrontendNode is closed.
func (s *OpenStream) Wait(ctx context.Context) (*InStream, error) {
	select {
	case <-s.claimed:
		return s.stream, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close gives the stream up: a worker that asks for it later is told so, and a stream that was claimed is killed.
// Idempotent.
func (s *OpenStream) Close() error {
	s.forget()
	if in := s.settle(nil, ErrClosed); in != nil {
		return in.Close()
	}
	return nil
}

// forget takes the id off the list of those that may be claimed.
func (s *OpenStream) forget() {
	s.recv.mu.Lock()
	delete(s.recv.unclaimed, s.id)
	s.recv.mu.Unlock()
}

// settle gives the waiters their answer, once, and returns the stream that was claimed.
func (s *OpenStream) settle(in *InStream, err error) *InStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.claimed:
	default:
		s.stream, s.err = in, err
		close(s.claimed)
	}
	return s.stream
}

// claim answers a worker's CLAIM on its link. The first worker that asks gets the stream; when it asks again on the
// same link before its OPEN, it gets the same terms.
func (k *inLink) claim(id [16]byte) (wire.GrantCode, []byte) {
	k.recv.mu.Lock()
	s := k.recv.unclaimed[id]
	k.recv.mu.Unlock()
	if s == nil {
		return wire.GrantUnknown, nil
	}
	s.mu.Lock()
	in, settled := s.stream, s.err != nil
	s.mu.Unlock()
	switch {
	case settled:
		return wire.GrantUnknown, nil
	case in == nil:
		var code wire.GrantCode
		if in, code = k.mintFor(s); code != wire.Granted {
			return code, nil
		}
	}
	if in.link != k || in.Opened() { // another worker was first, or the request came twice
		return wire.GrantUnknown, nil
	}
	return wire.Granted, in.terms
}

// mintFor mints the stream of open terms on this link. Two workers that ask at once race for it; the loser's is given
// back.
func (k *inLink) mintFor(s *OpenStream) (*InStream, wire.GrantCode) {
	o := s.opts
	if !s.by.IsZero() {
		o.TimeLeft = max(time.Until(s.by), time.Microsecond)
	}
	in, err := k.mint(o)
	switch {
	case errors.Is(err, ErrBusy):
		return nil, wire.GrantBusy
	case errors.Is(err, ErrNoLink):
		return nil, grantLater
	case err != nil:
		return nil, wire.GrantClosing
	}
	if won := s.settle(in, nil); won != in {
		_ = in.Close()
		if won == nil {
			return nil, wire.GrantUnknown
		}
		return won, wire.Granted
	}
	return in, wire.Granted
}

// grants are the answers that a frontend's lane owes. A worker that asks for more at a time than it may breaks the
// protocol, so they are bounded.
type grants struct {
	of   *inLane
	due  [][16]byte // the pipe's lock guards it
	owed pipe.Owed
}

// answer owes a GRANT.
func (g *grants) answer(body []byte) error {
	id, err := wire.ParseClaim(body)
	if err != nil {
		return err
	}
	p := g.of.pipe
	p.Lock()
	defer p.Unlock()
	if len(g.due) >= maxClaims {
		return &wire.Error{Kind: wire.Claim, Reason: fmt.Sprintf("comes while %d are not answered", maxClaims)}
	}
	g.due = append(g.due, id)
	p.OweLocked(&g.owed, pipe.Urgent)
	g.of.flush = true
	return nil
}

// grantLater says that no lane is known to be up just now, and is no code of the protocol: a connection's writer is
// faster than the news that it is there, or slower than that of its death.
const grantLater wire.GrantCode = 0xffff

// again owes what was put off.
func (g *grants) again() {
	p := g.of.pipe
	p.Lock()
	if len(g.due) == 0 {
		p.Unlock()
		return
	}
	p.OweLocked(&g.owed, pipe.Urgent)
	p.FlushLocked(pipe.ByUrgent)
}

// Emit implements pipe.Emitter. The stream is minted here, when its terms can go out.
func (g *grants) Emit(p *pipe.Pipe) (more bool) {
	p.Lock()
	due := g.due
	g.due = nil
	p.Unlock()
	for i, id := range due {
		code, terms := g.of.link.claim(id)
		p.Lock()
		if code == grantLater {
			g.due = append(due[i:], g.due...)
			p.Unlock()
			return !errors.Is(g.of.link.link.Takes(), ErrNoLink) // else LaneUp comes
		}
		p.Append(pipe.Urgent, wire.Grant, 0, wire.AppendGrantBody(nil, id, code, terms))
		p.Unlock()
	}
	return false
}
