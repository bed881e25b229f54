package quic

import (
	"runtime"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// quic-go's reader puts every packet into a queue of the connection and drops it when 256 are there, unseen by the kernel's
// counters. A window of 1 MiB is 750 packets, so a run loop that is late by a moment loses some, and the sender halves its
// rate. The kernel's buffer has room for thousands, so the reader of a lane's socket leaves them there while the queue is long.
const (
	queueHigh  = 240                    // of 256; a read takes at most 8
	queueSpins = 64                     // yields before the reader sleeps
	queuePause = 100 * time.Microsecond // and then checks again
	queueStuck = time.Second            // without progress: what is missing was never queued, or is lost
	// stuckPauses is how many pauses in a row without progress that takes at least. Each lets the connection run; a process that was
	// stopped, or got no processor for a second, has made one.
	stuckPauses = 500
)

// pace waits while the queue of the lane's connection is long. It is called by quic-go's reader only. The length of the queue is
// what was read from the socket less what the connection says it has received: it counts each datagram when it takes it out.
// While pace returns below queueHigh nothing can be dropped. What has not come out after queueStuck counts as dropped by the
// library, which may count too many and never hides one; so a lane needs no qlog recorder, which would cost 7 allocations a packet.
func (s *socket) pace() {
	c := s.conn.Load()
	if c == nil {
		return
	}
	in := int64(s.in.Load())
	last := int64(-1)
	var since time.Time
	idle := 0 // pauses since the last progress
	for i := 0; ; i++ {
		received := int64(c.ConnectionStats().PacketsReceived)
		queued := in - received - s.skew
		if queued < 0 { // a datagram that came before its keys counts twice
			s.skew += queued
		}
		if queued <= queueHigh || c.Context().Err() != nil {
			return
		}
		if received != last {
			last, since, idle = received, time.Now(), 0
		} else if idle >= stuckPauses && time.Since(since) > queueStuck {
			s.lost.Add(uint64(queued))
			s.skew = in - received
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

// serves says whose packets the socket carries: those of one connection only.
func (s *socket) serves(c *quicgo.Conn) { s.conn.Store(c) }

// tracesLanes says whether a dialled lane needs a recorder to count the library's drops; pace does it without.
const tracesLanes = false
