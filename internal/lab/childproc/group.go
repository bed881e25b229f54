package childproc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Group is the children of one run. One goroutine uses it.
type Group[M Message] struct{ Procs []*Proc[M] }

// Stop ends the children, the last started first: who consumes ends before whom it talks to.
func (g *Group[M]) Stop() {
	for i := len(g.Procs) - 1; i >= 0; i-- {
		g.Procs[i].Stop()
	}
}

// Tell gives all of procs a command.
func (g *Group[M]) Tell(m M, procs []*Proc[M]) error {
	for _, p := range procs {
		if err := p.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// Await waits until every one of procs has sent an op, and returns what they sent. Any child that fails or ends
// meanwhile is an *Error.
func (g *Group[M]) Await(ctx context.Context, timeout time.Duration, op string, procs []*Proc[M]) ([]M, error) {
	got := make([]M, len(procs))
	have := make([]bool, len(procs))
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	check := time.NewTicker(2 * time.Millisecond)
	defer check.Stop()
	for {
		missing := ""
		for _, p := range g.Procs {
			for more := true; more; {
				select {
				case m, ok := <-p.events:
					if !ok {
						return nil, p.failure(p.why(errors.New("it has ended")))
					}
					if why := m.Failure(); why != "" {
						return nil, p.failure(errors.New(why))
					}
					for i, q := range procs {
						if q == p && m.Operation() == op {
							got[i], have[i] = m, true
						}
					}
				default:
					more = false
				}
			}
		}
		for i, ok := range have {
			if !ok {
				missing = procs[i].Name
			}
		}
		if missing == "" {
			return got, nil
		}
		select {
		case <-check.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-limit.C:
			return nil, fmt.Errorf("%s did not say %q in %v", missing, op, timeout)
		}
	}
}

// opNever is what no child says.
const opNever = "never"

// Pass lets time pass and looks after the children meanwhile.
func (g *Group[M]) Pass(ctx context.Context, d time.Duration) error {
	_, err := g.Await(ctx, d, opNever, g.Procs)
	var child *Error
	if errors.As(err, &child) || ctx.Err() != nil {
		return err
	}
	return nil
}
