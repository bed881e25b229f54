package accept

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// Whatever frontends do at once, to their own lanes and to one another's, and whenever the worker closes: each link
// that has begun ends once, nothing comes after that, and nothing is left (rig.check and the leak check look).
func TestStorm(t *testing.T) {
	for round := range 20 {
		r := newRig(t, config(), memory.Config{Backlog: 512})
		r.record = func(_ int, h wire.Header) error {
			if h.Kind == wire.Kill {
				return &wire.Error{Kind: h.Kind, Reason: "breaks a rule"}
			}
			return nil
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for node := range 4 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(round), uint64(node)))
				for number := uint64(1); ; number++ {
					select {
					case <-stop:
						return
					default:
					}
					life(r, rnd, byte(node), number)
				}
			})
		}
		time.Sleep(time.Duration(round%5) * 10 * time.Millisecond)
		if round%2 == 0 {
			r.Drain("the worker drains")
		}
		_ = r.Close("the worker closes")
		close(stop)
		_ = r.front.Close()
		wg.Wait()
	}
}

// life is what one link of a frontend goes through.
func life(r *rig, rnd *rand.Rand, node byte, number uint64) {
	dial := func() *peer {
		c, err := r.front.Dial(r.ctx, dialTo(r.addr))
		if err != nil {
			return nil
		}
		return &peer{Conn: c}
	}
	greet := func(h wire.HelloBody) *peer {
		p := dial()
		if p == nil {
			return nil
		}
		if _, err := p.Write(wire.AppendHello(nil, &h)); err != nil || rnd.IntN(8) == 0 {
			_ = p.Close()
			return nil
		}
		if err := p.answer(); err != nil {
			_ = p.Close()
			return nil
		}
		return p
	}
	h := hello(number)
	h.Node[1] = node
	first := greet(h)
	if first == nil {
		return
	}
	defer func() { _ = first.Close() }()
	for serial := uint64(2); ; serial++ {
		again := next(first, uint16(rnd.IntN(2)), serial)
		again.Node = h.Node
		var p *peer
		switch rnd.IntN(12) {
		case 0:
			_, _ = first.Write(wire.AppendGoAway(nil, wire.AwayClosing, ""))
			return
		case 1:
			_, _ = first.Write(wire.AppendKill(nil, wire.MakeSlot(1, 1), 1, wire.EndKilled))
			return
		case 2:
			again.Received = 1 << 40
		case 3:
			again.OwnSecret[1]++
		case 4:
			return
		}
		if p = greet(again); p == nil {
			if r.ctx.Err() != nil {
				return
			}
			continue
		}
		_, _ = p.Write(consumed)
		if rnd.IntN(3) == 0 {
			_ = p.Close()
		} else {
			defer func() { _ = p.Close() }()
		}
	}
}
