package quic

import (
	"math"
	"net"
	"runtime"
	"slices"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// quic-go's reader puts every packet into a queue of the connection and drops it when 256 are there, unseen by the kernel's
// counters. A window of 1 MiB is 750 packets, so a run loop that is late by a moment loses some, and the sender halves its
// rate. The kernel's buffer has room for thousands, so the reader of a socket leaves them there while the queue is long.
const (
	queueFull  = 256
	queueHigh  = 240                    // a read takes at most 8
	queueSpins = 64                     // yields before the reader sleeps
	queuePause = 100 * time.Microsecond // and then checks again
)

// patience is how long the reader waits for a connection that makes no progress: both that long and that many pauses. Each pause lets
// the connection run; a process that was stopped, or got no processor, has made one.
type patience struct {
	time   time.Duration
	pauses int
}

var (
	// lanePatience is of a lane's socket, where nobody else waits. What is missing then was never queued, or is lost.
	lanePatience = patience{time.Second, 500}
	// endpointPatience is of an endpoint, which many lanes share. After it, the reader does not wait for that lane for endpointRest.
	endpointPatience = patience{5 * time.Millisecond, 50}
)

const endpointRest = 100 * time.Millisecond

// pace waits while the queue of a connection is long. It is called by quic-go's reader only, before a read: what was handed out
// before is queued by then. While every queue is at most queueHigh nothing can be dropped. What is missing counts as dropped by the
// library: datagrams beyond what a queue can hold, and those that were waited for in vain. Beside quic-go's own count of drops, which
// takes a qlog tracer and with it 7 allocations a packet, that was the same within 2 in 20 to 739 drops (v0.65). Packets of a connection
// that came damaged, twice, or for nobody are counted too, once they are so many that they could be a full queue.
func (s *socket) pace() {
	for _, a := range s.fed {
		s.paceFor(a)
	}
	clear(s.fed)
	s.fed = s.fed[:0]
}

func (s *socket) paceFor(a *account) {
	last := int64(-1)
	var since time.Time
	idle := 0 // pauses since the last progress
	for i := 0; ; i++ {
		queued, received, ok := a.queued()
		if !ok {
			return
		}
		if queued <= queueHigh {
			a.mark, a.low = received, math.MaxInt64
			return
		}
		a.low = min(a.low, queued)
		if received != last {
			if since = time.Now(); last < 0 && s.remote == nil && since.UnixNano()-a.given < int64(endpointRest) {
				s.overrun(a, queued)
				return
			}
			last, idle = received, 0
		} else if p := s.patience(); idle >= p.pauses && time.Since(since) > p.time {
			if s.remote != nil {
				s.lose(a, queued)
			} else {
				a.given = time.Now().UnixNano()
				s.overrun(a, queued)
				s.missing(a, received)
			}
			return
		}
		if i < queueSpins {
			runtime.Gosched()
		} else {
			time.Sleep(queuePause)
			idle++
		}
	}
}

func (s *socket) patience() patience {
	if s.remote != nil {
		return lanePatience
	}
	return endpointPatience
}

// overrun counts what an endpoint did not wait for. A queue holds no more than queueFull, so what is beyond that was dropped.
func (s *socket) overrun(a *account, queued int64) {
	if queued > queueFull {
		s.lose(a, queued-queueFull)
	}
}

// missing counts what an endpoint has waited for in vain. When as many were received since the queue was last short as it holds, all that
// waited then is out; so the least that it has seemed to hold since then was never in it.
func (s *socket) missing(a *account, received int64) {
	if received-a.mark > queueFull {
		s.lose(a, a.low)
		a.mark, a.low = received, math.MaxInt64
	}
}

func (s *socket) lose(a *account, n int64) {
	s.lost.Add(uint64(n))
	a.writeOff(n)
}

// feeds notes that the next datagrams that are handed out are of a. A read has few senders.
func (s *socket) feeds(a *account, datagrams int) {
	a.in += int64(datagrams)
	if !slices.Contains(s.fed, a) {
		s.fed = append(s.fed, a)
	}
}

// serves says that the socket carries a connection that is through its handshake. leave ends that.
func (s *socket) serves(c *quicgo.Conn) (leave func()) {
	addr, ok := c.RemoteAddr().(*net.UDPAddr)
	if !ok {
		return func() {}
	}
	return s.accounts.joins(addr, c)
}

// traces says whether connections need a recorder to count the library's drops; pace does it without.
const traces = false
