package quic

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// drained is a queue that gives some each time that the reader looks.
type drained struct {
	*queue
	each int
}

func (d drained) ConnectionStats() quicgo.ConnectionStats {
	d.pop(d.each)
	return d.queue.ConnectionStats()
}

// laneOf makes a dialled lane's socket whose connection is c.
func laneOf(c connection) (*socket, *account) {
	addr := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1).To4(), Port: 7000}
	s := &socket{remote: addr}
	s.accounts.joins(addr, c)
	return s, s.accounts.of(addr.AddrPort(), nil)
}

// Whatever queues look like, the reader of an endpoint does not wait: everybody's datagrams are behind it. And what
// it does not wait for is no long search each time either.
func TestAnEndpointNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &socket{}
		var all []*account
		looks := 0
		for i := range 8 {
			addr := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1).To4(), Port: 7000 + i}
			s.accounts.joins(addr, counted{&queue{ctx: t.Context()}, &looks})
			all = append(all, s.accounts.of(addr.AddrPort(), nil))
		}
		began := time.Now()
		const each = 100_000
		for i := range each * len(all) {
			s.feeds(all[i%len(all)], 1)
			if i%8 == 7 {
				s.pace()
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the reader has waited %v", d)
		}
		if most := len(all) * (each/queueCheck + 10); looks > most {
			t.Errorf("%d looks at queues for %d datagrams, want at most %d", looks, each*len(all), most)
		}
		if n := s.lost.Load(); n < uint64(len(all)*(each-queueFull-queueCheck)) {
			t.Errorf("%d are counted of %d", n, each*len(all))
		}
	})
}

// counted counts how often it is asked.
type counted struct {
	*queue
	looks *int
}

func (c counted) ConnectionStats() quicgo.ConnectionStats {
	*c.looks++
	return c.queue.ConnectionStats()
}

// Datagrams that never come out of the connection, damaged or doubled ones, make its queue look full. They cost a
// lane a bounded wait each time, and a sixteenth of its time over all.
func TestALaneWaitsInVainForASixteenthOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := laneOf(&queue{ctx: t.Context()})
		began := time.Now()
		var waited, longest time.Duration
		strays := 0
		for time.Since(began) < 10*time.Second {
			time.Sleep(100 * time.Microsecond)
			s.feeds(a, 8)
			strays += 8
			from := time.Now()
			s.pace()
			d := time.Since(from)
			waited, longest = waited+d, max(longest, d)
		}
		if longest == 0 || longest > patienceTime+2*queuePause {
			t.Errorf("the longest wait took %v", longest)
		}
		if most := time.Since(began)/restTimes + longest; waited > most {
			t.Errorf("it has waited %v of %v, want at most %v", waited, time.Since(began), most)
		}
		if n := int(s.lost.Load()); n < strays-queueFull-queueCheck || n > strays {
			t.Errorf("%d are counted of %d", n, strays)
		}
	})
}

// A lane whose connection is late, but not stuck, is waited for as long as that takes, and loses nothing.
func TestALaneWaitsForItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{ctx: t.Context()}
		s, a := laneOf(drained{q, 1})
		began := time.Now()
		for range 10_000 {
			s.feeds(a, 8)
			q.push(8)
			s.pace()
		}
		if q.dropped != 0 || s.lost.Load() != 0 {
			t.Errorf("%d were dropped, %d are counted", q.dropped, s.lost.Load())
		}
		if time.Since(began) == 0 && q.received < 9*8000 {
			t.Errorf("it has not waited, and %d were received", q.received)
		}
	})
}
