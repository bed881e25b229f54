package mux

import (
	"context"
	"fmt"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// maxClaims is how many CLAIMs of a link may be unanswered.
const maxClaims = 1024

// grant is a frontend's answer to a CLAIM.
type grant struct {
	code  wire.GrantCode
	terms []byte
}

// Claim opens the stream that open terms name: one round trip on the link to the frontend, which the engine can spend
// on its prefill. It fails with ErrStaleTerms (the frontend has given the request up, or another worker has it),
// ErrBusy, ErrDraining, ErrNoLink, ErrClosed, or ctx's error.
func (s *WorkerNode) Claim(ctx context.Context, terms []byte) (*OutStream, error) {
	stream, err := s.claim(ctx, terms)
	if err != nil {
		s.stats.refused.Add(1)
	}
	return stream, err
}

func (s *WorkerNode) claim(ctx context.Context, terms []byte) (*OutStream, error) {
	t, err := wire.ParseOpenTerms(terms)
	if err != nil {
		return nil, err
	}
	if err := s.takes(); err != nil {
		return nil, err
	}
	if t.TimeLeft > 0 && t.TimeLeft < forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.TimeLeft)
		defer cancel()
	}
	frontend := transport.NodeID(t.Frontend)
	for {
		k := s.linkTo(s.links.Newest(frontend))
		if k == nil {
			return nil, fmt.Errorf("%w: to node %s", ErrNoLink, frontend)
		}
		answer, err := k.ask(t.ID)
		if err != nil {
			return nil, err
		}
		select {
		case g, ok := <-answer:
			if !ok {
				continue // the link has ended: perhaps there is a newer one
			}
			return k.redeem(g)
		case <-ctx.Done():
			return nil, ctx.Err() // the answer finds nobody, and the frontend's time bounds end what it minted
		case <-s.done:
			return nil, ErrClosed
		}
	}
}

// ask sends CLAIM. The answer is closed when the link ends.
func (k *outLink) ask(id [16]byte) (<-chan grant, error) {
	answer := make(chan grant, 1)
	k.mu.Lock()
	_, twice := k.claims[id]
	full := len(k.claims) >= maxClaims
	if !twice && !full && !k.gone {
		k.claims[id] = answer
	}
	gone := k.gone
	k.mu.Unlock()
	switch {
	case gone:
		close(answer)
		return answer, nil
	case twice:
		return nil, fmt.Errorf("%w: the request came twice", ErrStaleTerms)
	case full:
		return nil, fmt.Errorf("%w: %d claims are under way on the link", ErrBusy, maxClaims)
	}
	n := k.lanes[0]
	for i, l := range k.link.Lanes() {
		if l.Up() {
			n = k.lanes[i]
			break
		}
	}
	n.pipe.Lock()
	n.pipe.Append(pipe.Urgent, wire.Claim, 0, id[:])
	n.pipe.FlushLocked(pipe.ByUrgent)
	return answer, nil
}

// granted takes a GRANT. It counts on the link that was asked and nowhere else.
func (k *outLink) granted(body []byte) error {
	id, code, terms, err := wire.ParseGrant(body)
	if err != nil {
		return err
	}
	k.mu.Lock()
	answer := k.claims[id]
	delete(k.claims, id)
	k.mu.Unlock()
	if answer == nil {
		k.stats.drops.add(dropStale)
		return nil
	}
	answer <- grant{code, append([]byte(nil), terms...)} // it has room, and only one is sent
	return nil
}

// redeem opens the stream of an answer, whose terms must be of this link.
func (k *outLink) redeem(g grant) (*OutStream, error) {
	switch g.code {
	case wire.Granted:
	case wire.GrantBusy:
		return nil, fmt.Errorf("%w: the frontend has no room", ErrBusy)
	case wire.GrantClosing:
		return nil, fmt.Errorf("%w: the frontend takes no new responses", ErrDraining)
	default:
		return nil, fmt.Errorf("%w: the frontend does not wait for this request any more", ErrStaleTerms)
	}
	t, err := wire.ParseTerms(g.terms)
	if err != nil {
		return nil, err
	}
	if transport.NodeID(t.Frontend) != k.link.Peer() || t.Worker != [16]byte(k.cfg.ID) || t.Link != k.link.Number() {
		return nil, fmt.Errorf("%w: the terms that answer the claim are of another link", ErrStaleTerms)
	}
	return k.attach(&t, g.terms)
}
