package mux

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

const (
	// maxOpenTerms bounds the open terms that a Receiver waits for, and the CLAIMs that a Sender has under way.
	maxOpenTerms = 65536
	// claimAgain is how long a CLAIM may go unanswered before it is sent again, on whatever lane is up: asking twice is
	// harmless, the frontend answers with the same terms.
	claimAgain = time.Second
)

// OpenStream is a stream whose worker is not chosen yet: its terms travel inside the request, and the worker that gets it
// claims the stream on its link. Wait for it, or Close it.
type OpenStream struct {
	recv  *Receiver
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
func (r *Receiver) MintOpen(o MintOptions) (*OpenStream, error) {
	s := &OpenStream{recv: r, opts: o, claimed: make(chan struct{})}
	_, _ = rand.Read(s.id[:]) // never fails (crypto/rand)
	if o.TimeLeft > 0 {
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
// ErrClosed once Close was called or the Receiver is closed.
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

// claim answers a worker's CLAIM on its link. The first worker that asks gets the stream; when it asks again, on whatever
// lane, it gets the same terms.
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

// mintFor mints the stream of open terms on this link. Two workers that ask at once race for it; the loser's is given back.
func (k *inLink) mintFor(s *OpenStream) (*InStream, wire.GrantCode) {
	o := s.opts
	if !s.by.IsZero() {
		o.TimeLeft = max(time.Until(s.by), time.Microsecond)
	}
	in, err := k.mint(o)
	switch {
	case errors.Is(err, ErrBusy):
		return nil, wire.GrantBusy
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

// grants are the answers that a frontend's lane owes: bounded, because a worker that asks without reading must not grow
// anything. The lane's lock guards the list.
type grants struct {
	element
	due [][16]byte
	of  *inLink
}

// maxGrants bounds the answers between two writes. One that is dropped is asked for again.
const maxGrants = 4096

func (g *grants) answer(l *lane, id [16]byte) {
	l.mu.Lock()
	full := len(g.due) >= maxGrants
	if !full {
		g.due = append(g.due, id)
		l.place(&g.element, true)
	}
	l.mu.Unlock()
	if full {
		l.node.stats.drops.add(dropOverrun)
		return
	}
	l.flush(writeUrgent)
}

// emit implements outgoing. The stream is minted here, when its terms can go out.
func (g *grants) emit(l *lane, b []byte, _ int) ([]byte, int, int, bool) {
	l.mu.Lock()
	due := g.due
	g.due = nil
	l.mu.Unlock()
	for _, id := range due {
		code, terms := g.of.claim(id)
		b = wire.AppendGrant(b, id, code, terms)
	}
	return b, 0, 0, false
}

// claims are the CLAIMs that a worker's lane has to send. The lane's lock guards the list.
type claims struct {
	element
	due [][16]byte
}

// emit implements outgoing.
func (c *claims) emit(l *lane, b []byte, _ int) ([]byte, int, int, bool) {
	l.mu.Lock()
	due := c.due
	c.due = nil
	l.mu.Unlock()
	for _, id := range due {
		b = wire.AppendClaim(b, id)
	}
	return b, 0, 0, false
}

func (c *claims) send(l *lane, id [16]byte) {
	l.mu.Lock()
	c.due = append(c.due, id) // each id once a second at most, and maxOpenTerms of them
	l.place(&c.element, true)
	l.mu.Unlock()
	l.flush(writeUrgent)
}

// grant is a frontend's answer.
type grant struct {
	code  wire.GrantCode
	terms []byte
}

// Claim opens the stream that open terms name: one round trip on the link to the frontend, which the engine can spend on
// its prefill. It fails with ErrStaleTerms (the frontend has given the request up, or another worker has it), ErrBusy,
// ErrDraining, ErrNoLink, ErrClosed, or ctx's error.
func (s *Sender) Claim(ctx context.Context, terms []byte) (*OutStream, error) {
	stream, err := s.claim(ctx, terms)
	if err != nil {
		s.stats.refused.Add(1)
	}
	return stream, err
}

func (s *Sender) claim(ctx context.Context, terms []byte) (*OutStream, error) {
	t, err := wire.ParseOpenTerms(terms)
	if err != nil {
		return nil, err
	}
	if t.TimeLeft > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.TimeLeft)
		defer cancel()
	}
	answer := make(chan grant, 1)
	s.mu.Lock()
	_, twice := s.claiming[t.ID]
	full := len(s.claiming) >= maxOpenTerms
	if !twice && !full {
		s.claiming[t.ID] = answer
	}
	s.mu.Unlock()
	switch {
	case twice:
		return nil, fmt.Errorf("%w: the request came twice", ErrStaleTerms)
	case full:
		return nil, fmt.Errorf("%w: %d claims are under way", ErrBusy, maxOpenTerms)
	}
	defer func() {
		s.mu.Lock()
		delete(s.claiming, t.ID)
		s.mu.Unlock()
	}()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case g := <-answer:
			return s.granted(g)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.done:
			return nil, ErrClosed
		case <-again.C:
			l := s.laneTo(transport.NodeID(t.Frontend))
			if l == nil {
				return nil, fmt.Errorf("%w: to node %s", ErrNoLink, transport.NodeID(t.Frontend))
			}
			l.claims.send(l, t.ID)
			again.Reset(claimAgain)
		}
	}
}

// granted opens the stream of an answer.
func (s *Sender) granted(g grant) (*OutStream, error) {
	switch g.code {
	case wire.Granted:
		t, err := wire.ParseTerms(g.terms)
		if err != nil {
			return nil, err
		}
		return s.attach(&t)
	case wire.GrantBusy:
		return nil, fmt.Errorf("%w: the frontend has no room", ErrBusy)
	case wire.GrantClosing:
		return nil, fmt.Errorf("%w: the frontend takes no new responses", ErrDraining)
	}
	return nil, fmt.Errorf("%w: the frontend does not wait for this request any more", ErrStaleTerms)
}

// laneTo is a lane of the newest link to a frontend, nil when none is up.
func (s *Sender) laneTo(peer transport.NodeID) (best *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest uint64
	for key, k := range s.links {
		if key.peer != peer || best != nil && key.id < newest {
			continue
		}
		k.mu.Lock()
		for _, l := range k.lanes {
			best, newest = l, key.id
		}
		k.mu.Unlock()
	}
	return best
}

// answered takes a GRANT. One that nobody waits for is dropped: the claim was given up, and the frontend's own time bounds
// end the stream.
func (s *Sender) answered(body []byte) error {
	id, code, terms, err := wire.ParseGrant(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	answer := s.claiming[id]
	s.mu.Unlock()
	if answer == nil {
		s.stats.drops.add(dropStale)
		return nil
	}
	select {
	case answer <- grant{code, append([]byte(nil), terms...)}:
	default: // the answer to a CLAIM that was sent again
	}
	return nil
}
