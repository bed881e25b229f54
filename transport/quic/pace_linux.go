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
	queueStuck = 200 * time.Millisecond // without progress: what is missing was never queued
)

// pace waits while the queue of the lane's connection is long. It is called by quic-go's reader only. The length of the queue is
// what was read from the socket less what the connection says it has received: it counts each datagram when it takes it out.
// Datagrams that no connection gets (strays) and those that were dropped after all are the skew.
func (s *socket) pace() {
	c := s.conn.Load()
	if c == nil {
		return
	}
	in := int64(s.in.Load())
	last := int64(-1)
	var since time.Time
	for i := 0; ; i++ {
		received := int64(c.ConnectionStats().PacketsReceived)
		queued := in - received - s.skew
		if queued < 0 {
			s.skew += queued
		}
		if queued <= queueHigh || c.Context().Err() != nil {
			return
		}
		if received != last {
			last, since = received, time.Now()
		} else if time.Since(since) > queueStuck {
			s.skew = in - received
			return
		}
		if i < queueSpins {
			runtime.Gosched()
		} else {
			time.Sleep(queuePause)
		}
	}
}

// serves says whose packets the socket carries: those of one connection only.
func (s *socket) serves(c *quicgo.Conn) { s.conn.Store(c) }
