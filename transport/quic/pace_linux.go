package quic

import (
	"net"
	"runtime"
	"slices"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// quic-go's reader puts every packet into a queue of the connection and drops it when 256 are there, unseen by the
// kernel's counters. The window of a dialled lane is up to 1 MiB, 750 packets, so a run loop that is late by a moment
// loses some, and the sender halves its rate. The kernel's buffer has room for thousands, so the reader of a lane's
// socket leaves them there while the queue is long.
//
// The reader of an endpoint never waits: whatever it waited for, it would wait with everybody's datagrams behind it,
// and a peer can make its queue look full. The window that an endpoint gives a lane is short enough for the queue
// instead; see endpointWindow.
const (
	queueFull  = 256
	queueHigh  = 240                    // a read takes at most 8
	queueSpins = 64                     // yields before the reader sleeps
	queuePause = 100 * time.Microsecond // and then checks again
	queueCheck = 32                     // datagrams between two looks at a queue that stays long
)

// A reader waits for a connection that makes no progress for both that long and that many pauses: each pause lets the
// connection run; a process that was stopped, or got no processor, has made one. What is missing then was never
// queued, or is lost: it is written off, and the reader does not wait again for restTimes as long. So what looks like
// a full queue costs a lane a sixteenth of its time, at most.
const (
	patienceTime   = 200 * time.Millisecond
	patiencePauses = 200
	restTimes      = 16
)

// pace keeps the books of those whose datagrams came, and waits where the queue of a lane's connection is long. It is
// called by quic-go's reader only, before a read: what was handed out before is queued by then. While every queue is
// at most queueHigh nothing can be dropped. What is missing counts as dropped by the library: datagrams beyond what a
// queue can hold, and those that were waited for in vain. Beside quic-go's own count of drops, which takes a qlog
// tracer and with it 7 allocations a packet, that was the same within 2 in 20 to 739 drops (v0.65). Packets of a
// connection that came damaged, twice, or for nobody are counted too, once they are so many that they could be a full
// queue.
func (s *socket) pace() {
	for _, a := range s.fed {
		s.paceFor(a)
	}
	clear(s.fed)
	s.fed = s.fed[:0]
}

func (s *socket) paceFor(a *account) {
	if a.in < a.due {
		return
	}
	queued, received, ok := a.queued()
	if ok && queued > queueHigh && s.remote != nil && !time.Now().Before(a.rest) {
		queued, ok = s.wait(a, queued, received)
	}
	switch {
	case !ok:
	case queued <= queueHigh:
		a.due = a.in + queueHigh + 1 - queued // it cannot be long before that
	default:
		a.due = a.in + queueCheck
		if queued > queueFull { // no more fit
			s.lose(a, queued-queueFull)
		}
	}
}

// wait waits until the queue is short, and writes off what it has waited for in vain.
func (s *socket) wait(a *account, queued, received int64) (left int64, ok bool) {
	began := time.Now()
	since, idle := began, 0 // the last progress, and pauses since then
	for i := 0; queued > queueHigh; i++ {
		if idle >= patiencePauses && time.Since(since) > patienceTime {
			now := time.Now()
			a.rest = now.Add(restTimes * now.Sub(began))
			s.lose(a, queued)
			return 0, true
		}
		if i < queueSpins {
			runtime.Gosched()
		} else {
			time.Sleep(queuePause)
			idle++
		}
		last := received
		if queued, received, ok = a.queued(); !ok {
			return 0, false
		}
		if received != last {
			since, idle = time.Now(), 0
		}
	}
	return queued, true
}

func (s *socket) lose(a *account, n int64) {
	s.lost.Add(uint64(n))
	a.skew += n // they will not be received
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
