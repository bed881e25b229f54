package lanes

import (
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// relay stands between a dialler and one acceptor: it drops a share of the datagrams, at random from a fixed seed, and
// holds each for half of a round-trip time.
type relay struct {
	front, back *net.UDPConn // towards the dialler, towards the acceptor
	loss        float64
	delay       time.Duration
	client      atomic.Pointer[net.UDPAddr]
	wg          sync.WaitGroup

	passed, dropped atomic.Uint64
}

// held is a datagram on its way.
type held struct {
	b   []byte
	due time.Time
}

const (
	// relayQueue bounds what one direction holds; past it datagrams are dropped, as by a link.
	relayQueue  = 4096
	relayBuffer = 4 << 20
	relaySeed   = 1
)

func newRelay(acceptor string, loss float64, rtt time.Duration) (*relay, error) {
	to, err := net.ResolveUDPAddr("udp", acceptor)
	if err != nil {
		return nil, err
	}
	r := &relay{loss: loss, delay: rtt / 2}
	if r.front, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	if r.back, err = net.DialUDP("udp", nil, to); err != nil {
		return nil, errors.Join(err, r.front.Close())
	}
	for _, c := range []*net.UDPConn{r.front, r.back} {
		if err := errors.Join(c.SetReadBuffer(relayBuffer), c.SetWriteBuffer(relayBuffer)); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	r.pass(relaySeed, func(b []byte) (int, error) {
		n, from, err := r.front.ReadFromUDP(b)
		if err == nil {
			r.client.Store(from)
		}
		return n, err
	}, r.back.Write)
	r.pass(relaySeed+1, r.back.Read, func(b []byte) (int, error) { return r.front.WriteToUDP(b, r.client.Load()) })
	return r, nil
}

// pass relays one direction until its socket is closed.
func (r *relay) pass(seed uint64, read, write func([]byte) (int, error)) {
	queue := make(chan held, relayQueue)
	free := sync.Pool{New: func() any { return new([2048]byte) }}
	r.wg.Go(func() {
		defer close(queue)
		dice := rand.New(rand.NewPCG(seed, seed))
		for {
			b := free.Get().(*[2048]byte)
			n, err := read(b[:])
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // one end is not there any more, or not yet
				continue
			}
			if dice.Float64() < r.loss {
				r.dropped.Add(1)
				continue
			}
			select {
			case queue <- held{b[:n], time.Now().Add(r.delay)}:
			default:
				r.dropped.Add(1)
			}
		}
	})
	r.wg.Go(func() {
		for h := range queue {
			// A sleep is 50 us and more too long, so the rest of a wait is spun away.
			for wait := time.Until(h.due); wait > 0; wait = time.Until(h.due) {
				if wait > 2*time.Millisecond {
					time.Sleep(wait - 2*time.Millisecond)
				}
				runtime.Gosched()
			}
			if _, err := write(h.b); err == nil {
				r.passed.Add(1)
			}
			free.Put((*[2048]byte)(h.b[:2048]))
		}
	})
}

func (r *relay) address() string { return r.front.LocalAddr().String() }

func (r *relay) close() error {
	err := errors.Join(r.front.Close(), r.back.Close())
	r.wg.Wait()
	return err
}
