package transporttest

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// testTruncation ends the connection below a lane in the middle of its bytes, as a middlebox does. A plane with a proof
// of who is at the other end must not take that for the peer's CloseWrite.
func testTruncation(t *testing.T, f Factory) {
	if f.Network != "tcp" {
		t.Skip("below this plane there is no stream that could be cut")
	}
	r := newRig(t, f, 1)
	relay := newStreamRelay(t, r.ln.Endpoints()[0].String())
	d, a := throughRelay(t, r, relay.address)
	sent := start(func() result { return send(a, 1, 200_000, 10_000) })
	got := must(t, start(func() result { return drain(d, 200_000) }), "reading")
	same(t, must(t, sent, "writing"), got)
	relay.cut()
	n, err := d.Read(make([]byte, 1))
	switch {
	case n != 0 || err == nil:
		t.Fatalf("read %d bytes and %v from a lane that was cut", n, err)
	case f.Proves && err == io.EOF:
		t.Error("a lane that was cut looks as if the peer had ended its bytes")
	}
}

// testLossyPath drops, repeats and delays datagrams. The lane must carry its bytes all the same.
func testLossyPath(t *testing.T, f Factory) {
	if f.Network != "udp" {
		t.Skip("the kernel repairs losses below this plane")
	}
	r := newRig(t, f, 1)
	relay := newDatagramRelay(t, r.ln.Endpoints()[0].String())
	d, a := throughRelay(t, r, relay.address)
	relay.lossy.Store(true)
	done := make(chan error, 1)
	go func() { done <- pairOfLanes{d, a}.flow(3, 1<<20, 50_000) }()
	if err := must(t, done, "the lane"); err != nil {
		t.Error(err)
	}
	if relay.dropped.Load() == 0 || relay.doubled.Load() == 0 || relay.delayed.Load() == 0 {
		t.Errorf("the path was not bad: %d dropped, %d doubled, %d delayed", relay.dropped.Load(), relay.doubled.Load(),
			relay.delayed.Load())
	}
	if c := d.Info(); c.Remote.String() != relay.address {
		t.Errorf("the lane runs to %v, not through the relay", c.Remote)
	}
}

// throughRelay opens a lane by another address.
func throughRelay(t *testing.T, r *rig, address string) (dialled, accepted transport.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d, err := r.dialer.Dial(ctx, transport.DialRequest{Address: address, Peer: r.acceptorID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if _, err := d.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	a, err := r.ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if _, err := io.ReadFull(a, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return d, a
}

// streamRelay carries one TCP connection.
type streamRelay struct {
	address string
	mu      sync.Mutex
	conns   []*net.TCPConn
}

func newStreamRelay(t *testing.T, to string) *streamRelay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &streamRelay{address: ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		in, err := ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			in.Close()
			return
		}
		s.mu.Lock()
		s.conns = []*net.TCPConn{in.(*net.TCPConn), out.(*net.TCPConn)}
		s.mu.Unlock()
		wg.Go(func() { _, _ = io.Copy(in, out) })
		wg.Go(func() { _, _ = io.Copy(out, in) })
	})
	t.Cleanup(func() {
		ln.Close()
		s.mu.Lock()
		conns := s.conns
		s.mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
		wg.Wait()
	})
	return s
}

// cut ends both directions with FIN.
func (s *streamRelay) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.CloseWrite()
	}
}

// datagramRelay carries the datagrams of one dialler.
type datagramRelay struct {
	address                   string
	lossy                     atomic.Bool
	copies                    atomic.Int64 // of each datagram to the acceptor, beside itself
	dropped, doubled, delayed atomic.Int64
	back                      *net.UDPConn
}

// inject sends a datagram to the acceptor, from where it sees the dialler.
func (r *datagramRelay) inject(b []byte) { _, _ = r.back.Write(b) }

func newDatagramRelay(t *testing.T, to string) *datagramRelay {
	t.Helper()
	front, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	target, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.DialUDP("udp4", nil, target)
	if err != nil {
		t.Fatal(err)
	}
	r := &datagramRelay{address: front.LocalAddr().String(), back: back}
	var dialler atomic.Pointer[net.UDPAddr]
	var wg sync.WaitGroup
	wg.Go(func() {
		r.carry(front, func(b []byte) {
			for range 1 + r.copies.Load() {
				r.inject(b)
			}
		}, func(from *net.UDPAddr) { dialler.Store(from) })
	})
	wg.Go(func() {
		r.carry(back, func(b []byte) {
			if d := dialler.Load(); d != nil {
				_, _ = front.WriteToUDP(b, d)
			}
		}, nil)
	})
	t.Cleanup(func() {
		front.Close()
		back.Close()
		wg.Wait()
	})
	return r
}

// carry passes datagrams on until the socket is closed. Each direction loses its 20th, repeats its 30th and delays its
// 7th datagram behind the next one.
func (r *datagramRelay) carry(from *net.UDPConn, send func([]byte), seen func(*net.UDPAddr)) {
	buf := make([]byte, 2048)
	var held []byte
	for i := 1; ; i++ {
		// so that what is held goes out though nothing follows
		_ = from.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, addr, err := from.ReadFromUDP(buf)
		if err != nil {
			if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
				return
			}
			if held != nil {
				send(held)
				held = nil
			}
			continue
		}
		if seen != nil {
			seen(addr)
		}
		p := buf[:n]
		switch bad := r.lossy.Load(); {
		case bad && i%20 == 0:
			r.dropped.Add(1)
			continue
		case bad && i%30 == 0:
			r.doubled.Add(1)
			send(p)
		case bad && i%7 == 0 && held == nil:
			r.delayed.Add(1)
			held = append([]byte(nil), p...)
			continue
		}
		send(p)
		if held != nil {
			send(held)
			held = nil
		}
	}
}
