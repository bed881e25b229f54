package quic

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	quicgo "github.com/quic-go/quic-go"

	"github.com/laneway-ai/laneway/transport"
)

// queue stands for a connection: a queue of queueFull as quic-go's, which drops what does not fit.
type queue struct {
	waiting, received, dropped int64
	ctx                        context.Context
}

func (q *queue) ConnectionStats() quicgo.ConnectionStats {
	return quicgo.ConnectionStats{PacketsReceived: uint64(q.received)}
}
func (q *queue) Context() context.Context { return q.ctx }

func (q *queue) push(n int) {
	fits := min(int64(n), queueFull-q.waiting)
	q.waiting += fits
	q.dropped += int64(n) - fits
}

func (q *queue) pop(n int) {
	out := min(int64(n), q.waiting)
	q.waiting -= out
	q.received += out
}

// fedBy makes an endpoint's socket with one sender whose connection is q.
func fedBy(t *testing.T) (*socket, *account, *queue) {
	t.Helper()
	q := &queue{ctx: t.Context()}
	s := &socket{}
	addr := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1).To4(), Port: 7000}
	s.accounts.joins(addr, q)
	return s, s.accounts.of(addr.AddrPort(), nil), q
}

// read is one read of n datagrams, and what the reader does before the next. It looks at the queue each time.
func read(s *socket, a *account, q *queue, n int) {
	s.feeds(a, n)
	q.push(n)
	a.due = 0
	s.pace()
}

// While a connection takes nothing, each datagram beyond its queue is counted, and none of those that wait.
func TestDropsOfAStalledConnectionAreCountedEach(t *testing.T) {
	s, a, q := fedBy(t)
	for range 125 {
		read(s, a, q, 8)
		if got := int64(s.lost.Load()); got != q.dropped {
			t.Fatalf("%d are counted, %d were dropped", got, q.dropped)
		}
	}
	if q.dropped != 1000-queueFull {
		t.Fatalf("the test drops %d", q.dropped)
	}
	for q.waiting > 7 {
		q.pop(7)
		read(s, a, q, 1)
	}
	for range 1000 {
		read(s, a, q, 8)
		q.pop(8)
	}
	if got := int64(s.lost.Load()); got != q.dropped {
		t.Errorf("afterwards %d are counted, %d were dropped", got, q.dropped)
	}
}

// A connection that is behind, but not too far, loses nothing, and nothing is counted, however often that is.
func TestABacklogIsNoDrop(t *testing.T) {
	s, a, q := fedBy(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		if n := 1 + random.IntN(8); q.waiting+int64(n) <= queueFull {
			read(s, a, q, n)
		}
		q.pop(random.IntN(9))
	}
	if q.dropped != 0 || s.lost.Load() != 0 {
		t.Errorf("%d are counted, %d were dropped", s.lost.Load(), q.dropped)
	}
}

// What the connection never sees is counted when it is more than a queue holds: until then it may wait there, for all
// that the endpoint knows. Never is more counted than there is.
func TestStraysOfASenderAreCounted(t *testing.T) {
	s, a, q := fedBy(t)
	const strays = 1000
	for i := range strays {
		s.feeds(a, 1)
		s.pace()
		if n := int(s.lost.Load()); n > max(i+1-queueFull, 0) {
			t.Fatalf("%d are counted of %d strays", n, i+1)
		}
	}
	if n := s.lost.Load(); n < strays-queueFull-queueCheck {
		t.Errorf("%d are counted of %d strays", n, strays)
	}
	for range 100 { // bursts that fit
		for range 25 {
			read(s, a, q, 8)
		}
		q.pop(queueFull)
	}
	if n := s.lost.Load(); n > strays || q.dropped != 0 {
		t.Errorf("%d are counted of %d strays, %d were dropped", n, strays, q.dropped)
	}
}

// The connections of one address are judged together, and one that leaves takes its counts along without a drop.
func TestConnectionsOfOneAddress(t *testing.T) {
	s, a, one := fedBy(t)
	two := &queue{ctx: t.Context()}
	leave := s.accounts.joins(a.addr, two)
	for range 500 {
		read(s, a, one, 2)
		one.pop(2)
		read(s, a, two, 1)
		two.pop(1)
	}
	leave()
	leave()
	for range 500 {
		read(s, a, one, 2)
		one.pop(2)
	}
	if n := s.lost.Load(); n != 0 {
		t.Errorf("%d are counted, none was dropped", n)
	}
	for range 2 * queueFull {
		read(s, a, one, 1)
	}
	// What waited in the moment of the change may hide as many.
	if n := int64(s.lost.Load()); n < one.dropped-2 || n > one.dropped {
		t.Errorf("%d are counted, %d were dropped", n, one.dropped)
	}
}

// Anybody can be a sender: those without a lane are forgotten, those with one are not.
func TestSendersAreBounded(t *testing.T) {
	s, a, q := fedBy(t)
	read(s, a, q, 5)
	for i := range 5 * maxAccounts {
		ap := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 9)
		if got := s.accounts.of(ap, nil); got.addr.AddrPort() != ap {
			t.Fatalf("%v is %v", ap, got.addr)
		}
		if n := len(s.accounts.by); n > maxAccounts+1 {
			t.Fatalf("%d senders are remembered", n)
		}
	}
	if s.accounts.of(a.addr.AddrPort(), nil) != a {
		t.Error("the sender with a lane was forgotten")
	}
}

// Datagrams from a lane's address that are for no connection are reported by the endpoint. They hold up neither the
// lane for good nor the others, and what they cost is bounded.
func TestStraysToAnEndpoint(t *testing.T) {
	for name, cfg := range map[string]Config{"gro": {}, "no gro": {DisableGRO: true}} {
		t.Run(name, func(t *testing.T) {
			a, b, ln, d, acc := pair(t, cfg, cfg)
			other, otherAcc := lanes(t, a, ln)
			stray := append([]byte{0x40}, make([]byte, 60)...)
			const strays = queueFull + 50
			for range strays {
				if _, err := d.(*lane).tr.WriteTo(stray, d.Info().Remote); err != nil {
					t.Fatal(err)
				}
			}
			const size = 2 << 20
			for _, ends := range [][2]transport.Conn{{other, otherAcc}, {d, acc}} {
				go ends[0].Write(make([]byte, size))
				if _, err := io.CopyN(io.Discard, ends[1], size); err != nil {
					t.Fatal(err)
				}
			}
			// As many as a queue holds may be in it, for all that the endpoint knows.
			if n := b.Counters().LibraryDrops; n < strays-queueFull {
				t.Errorf("%d packets are reported, %d never reached the connection", n, strays)
			}
			if n := a.Counters().LibraryDrops; n != 0 {
				t.Errorf("the sender reports %d", n)
			}
		})
	}
}

// What an endpoint reports as dropped, its client has lost: it is no sum of packets that were only late.
func TestBulkToAnEndpoint(t *testing.T) {
	a, b, _, d, acc := pair(t, Config{}, Config{})
	const size = 32 << 20
	go d.Write(make([]byte, size))
	if _, err := io.CopyN(io.Discard, acc, size); err != nil {
		t.Fatal(err)
	}
	if lib, lost := b.Counters().LibraryDrops, a.Counters().PacketsLost; lib > lost+queueFull {
		t.Errorf("%d library drops, the sender has lost %d", lib, lost)
	}
}

// An endpoint forgets the connection of a lane that is closed.
func TestAClosedLaneLeavesItsEndpoint(t *testing.T) {
	_, _, ln, d, acc := pair(t, Config{}, Config{})
	s := ln.(*listener).endpoints[0].sock
	at := d.Info().Local.(*net.UDPAddr).AddrPort()
	if s.accounts.of(at, nil).conns.Load() == nil {
		t.Fatal("the endpoint does not know the connection")
	}
	acc.Close()
	if s.accounts.of(at, nil).conns.Load() != nil {
		t.Error("the connection is kept")
	}
}
