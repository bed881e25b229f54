package accept

import (
	"fmt"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

// noise is what hostile connections send: what they send of a HELLO and no more.
var noise = []int{0, 5, 50, wire.HeaderSize + wire.HelloSize - 1}

func (r *rig) hang(t testing.TB, p *peer, n int) *peer {
	t.Helper()
	h := hello(77)
	p.send(t, wire.AppendHello(nil, &h)[:n])
	return p
}

// Handshakes that are never finished hold no place that another one needs: the oldest goes, whatever it has sent.
func TestPlacesOfStrangers(t *testing.T) {
	for _, n := range noise {
		inFakeTime(t, fmt.Sprint(n, " bytes"), func(t *testing.T) {
			r := newRig(t, config(), memory.Config{Backlog: 4096})
			var first, last *peer
			for i := range maxStrangers {
				p := r.hang(t, r.dialFrom(t, ip(9)), n)
				if i == 0 {
					first = p
				}
				last = p
			}
			synctest.Wait()
			if st := r.Stats(); st.Handshakes != maxStrangers || st.Evicted != 0 {
				t.Fatalf("%+v", st)
			}
			begun := time.Now()
			r.dialFrom(t, ip(2)).up(t, hello(1))
			took(t, "a link of another stranger", time.Since(begun), 0, time.Millisecond)
			first.dead(t)
			synctest.Wait()
			if st := r.Stats(); st.Handshakes != maxStrangers-1 || st.Evicted != 1 {
				t.Errorf("%+v", st)
			}
			time.Sleep(4 * time.Second)
			h := hello(77)
			last.send(t, wire.AppendHello(nil, &h)[n:]) // nobody is hurried without need
			if h, _, err := last.read(); err != nil || h.Kind != wire.Hello {
				t.Errorf("a slow one: %s, %v", h.Kind, err)
			}
			time.Sleep(1100 * time.Millisecond)
			if st := r.Stats(); st.Handshakes != 0 {
				t.Errorf("after %v: %+v", handshakeTimeout, st)
			}
		})
	}
}

// An address that has had a link, and has none any more, gets a place whatever strangers do, and keeps it.
func TestPlacesOfKnownAddresses(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{Backlog: 4096})
		p := r.dialFrom(t, ip(2)).up(t, hello(1))
		p.send(t, wire.AppendGoAway(nil, wire.AwayClosing, "bye"))
		p.dead(t)
		wait(t, "the link's end", func() bool { return len(r.Links.Links()) == 0 })
		if len(r.vouched) != 1 || r.vouched[0].String() != ip(2).String() {
			t.Errorf("listeners were told of %v", r.vouched)
		}
		slow := r.hang(t, r.dialFrom(t, ip(2)), 60)
		for i := range 3000 {
			r.hang(t, r.dialFrom(t, ip(byte(100+i%100))), noise[i%len(noise)])
			if i%300 == 0 {
				begun := time.Now()
				h := hello(uint64(10 + i))
				h.Serial = 1
				r.dialFrom(t, ip(2)).up(t, h)
				took(t, "a link", time.Since(begun), 0, time.Millisecond)
			}
		}
		h := hello(77)
		slow.send(t, wire.AppendHello(nil, &h)[60:])
		if h, _, err := slow.read(); err != nil || h.Kind != wire.Hello {
			t.Errorf("a slow one: %s, %v", h.Kind, err)
		}
		synctest.Wait()
		if st := r.Stats(); st.Handshakes != maxStrangers {
			t.Errorf("%+v", st)
		}
	})
}

// Whoever does not read the answer to a HELLO has no place that another one needs either.
func TestPlacesOfThoseWhoDoNotRead(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		// the answer, less 4 bytes of what waits before it
		r := newRig(t, config(), memory.Config{Backlog: 4096, Buffer: 140})
		for i := range maxStrangers {
			h := hello(uint64(100 + i))
			r.dialFrom(t, ip(byte(10+i))).send(t, wire.AppendHello(nil, &h))
			synctest.Wait()
		}
		if st := r.Stats(); st.Links != maxStrangers {
			t.Fatalf("%+v", st)
		}
		for i := range 1000 { // their own addresses are known now, and have no more than the grace
			h := hello(uint64(5000 + i))
			r.dialFrom(t, ip(byte(10+i%200))).send(t, wire.AppendHello(nil, &h)[:100])
		}
		begun := time.Now()
		r.dialFrom(t, ip(5)).dead(t)
		r.dialFrom(t, ip(10)).up(t, hello(1))
		took(t, "a link", time.Since(begun), 0, (1000/maxHandshakes+2)*grace)
	})
}

// Known addresses that take all places have each for the grace only when another one waits, and a stranger gets none
// of theirs.
func TestPlacesAmongKnownAddresses(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{Backlog: 4096})
		r.dialFrom(t, ip(2)).up(t, hello(1))
		h := hello(2)
		h.Node[1] = 1
		victim := r.dialFrom(t, ip(3)).up(t, h)
		for range maxHandshakes {
			r.hang(t, r.dialFrom(t, ip(2)), 60)
		}
		synctest.Wait()
		r.dialFrom(t, ip(4)).dead(t)
		if st := r.Stats(); st.Handshakes != maxHandshakes || st.Evicted != 1 {
			t.Fatalf("%+v", st)
		}
		for range 3 * maxHandshakes {
			r.hang(t, r.dialFrom(t, ip(2)), 60)
		}
		begun := time.Now()
		again := next(victim, 0, 2)
		again.Node = h.Node
		r.dialFrom(t, ip(3)).up(t, again)
		took(t, "a takeover", time.Since(begun), 0, 4*grace+time.Millisecond)
	})
}

// One address has its share of the links, and so has a node that the plane has proven.
func TestShareOfLinks(t *testing.T) {
	open := func(t *testing.T, r *rig, info func(i int) transport.ConnInfo) (n int) {
		for i := range 100 {
			h, c := hello(uint64(1+i)), info(i)
			h.Node = c.Peer
			if !c.Proven {
				h.Node, c.Peer = [16]byte{byte(i), byte(i >> 8), 5}, transport.NodeID{}
			}
			if err := r.dialAs(t, c).greet(t, h); err == nil {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		name string
		info func(i int) transport.ConnInfo
		want int
	}{
		{"an address", func(int) transport.ConnInfo { return transport.ConnInfo{Plane: "tcp", Remote: ip(2)} }, 64},
		{"an address with a certificate for each", func(i int) transport.ConnInfo {
			return transport.ConnInfo{Plane: "tls", Remote: ip(2), Peer: transport.NodeID{byte(i), 1}, Proven: true}
		}, 64},
		{"a certificate on many addresses", func(i int) transport.ConnInfo {
			return transport.ConnInfo{Plane: "tls", Remote: ip(byte(i)), Peer: transport.NodeID{1}, Proven: true}
		}, 16},
		{"many of both", func(i int) transport.ConnInfo {
			return transport.ConnInfo{Plane: "tls", Remote: ip(byte(i)), Peer: transport.NodeID{byte(i), 1},
				Proven: true}
		}, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, config(), memory.Config{})
			if n := open(t, r, c.info); n != c.want {
				t.Errorf("%d links, expected %d", n, c.want)
			}
			if n := r.Stats().Refused["limit"]; n != uint64(100-c.want) {
				t.Errorf("%d were refused by limit", n)
			}
			p := r.dialAs(t, transport.ConnInfo{Plane: "tls", Remote: ip(222), Peer: frontID, Proven: true}).up(t,
				hello(1))
			p.send(t, wire.AppendGoAway(nil, wire.AwayClosing, ""))
		})
	}
	t.Run("given back", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{})
		for i := range 200 {
			p := r.dialFrom(t, ip(2)).up(t, hello(uint64(1+i)))
			p.send(t, wire.AppendGoAway(nil, wire.AwayClosing, ""))
			wait(t, "the link's end", func() bool { return r.Stats().Links == 0 })
		}
	})
}

// The addresses that are remembered are bounded; none that has a link is forgotten.
func TestAddressesAreBounded(t *testing.T) {
	var r register
	r.init(1 << 20)
	for i := range maxAddresses + 500 {
		info := transport.ConnInfo{Remote: v6(i)}
		k := &Link{peer: frontID, number: uint64(i), address: addressOf(info.Remote)}
		if err := r.room(k.peer, &info); err != nil {
			t.Fatal(err)
		}
		r.add(k)
		if i >= 100 {
			r.addresses[k.address]--
		}
	}
	if n := len(r.addresses); n != maxAddresses {
		t.Errorf("%d addresses", n)
	}
	for i := range 100 {
		if r.addresses[addressOf(v6(i))] != 1 {
			t.Fatalf("address %d was forgotten", i)
		}
	}
}

// On a plane that proves nothing, HELLOs that claim a frontend's NodeID change nothing for its link, up or waiting:
// it is nobody's but theirs who have its secrets, none ends it before its time, and it is the one that is asked.
func TestClaimedNodeID(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{})
		victim := r.dialFrom(t, ip(2)).up(t, hello(5))
		k := r.Newest(frontID)
		s := r.of(k)
		attack := func() {
			t.Helper()
			for number := range uint64(10) {
				h := hello(number)
				h.OwnSecret, h.Serial = [16]byte{0xbb}, 1000
				err := r.dialFrom(t, ip(9)).greet(t, h)
				if number == 5 && err == nil {
					t.Error("the link was taken")
				}
				h.Link, h.PeerSecret = 5, [16]byte{0xcc}
				r.dialFrom(t, ip(9)).refusedAs(t, h, wire.AwayUnknownLink)
			}
		}
		attack()
		if r.Newest(frontID) != k {
			t.Error("another link is asked")
		}
		victim.send(t, consumed)
		wait(t, "a record", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.got[0] == 1 })
		_ = victim.Close()
		wait(t, "the death", func() bool { return !k.up() })
		begun := time.Now()
		attack()
		time.Sleep(29*time.Second - time.Since(begun))
		if len(s.all()) > 0 {
			t.Fatalf("ended before its time: %+v", s.all())
		}
		r.dialFrom(t, ip(3)).up(t, next(victim, 0, 2)) // from elsewhere: the secrets count
		synctest.Wait()
		if !k.up() || r.Newest(frontID) != k {
			t.Error("the link is not back")
		}
	})
}

// Where the plane proves nodes the newest link is asked, and one that proves nothing never.
func TestNewestOfProvenNodes(t *testing.T) {
	r := newRig(t, config(), memory.Config{})
	proven := transport.ConnInfo{Plane: "tls", Remote: ip(2), Peer: frontID, Proven: true}
	r.dialFrom(t, ip(9)).up(t, hello(9))
	for _, number := range []uint64{3, 7, 5} {
		r.dialAs(t, proven).up(t, hello(number))
	}
	r.dialFrom(t, ip(9)).up(t, hello(10))
	wait(t, "link 7", func() bool { k := r.Newest(frontID); return k != nil && k.Number() == 7 })
	if k := r.Newest(transport.NodeID{99}); k != nil {
		t.Errorf("a node without a link has link %d", k.Number())
	}
}

// What all links that one address may have cost, with all their lanes, before a record was sent on them: 32 KiB each.
func TestMemoryOfAnAddress(t *testing.T) {
	const bound = 64 * 32 << 10
	r := newRig(t, config(), memory.Config{})
	for i := range 200 {
		h := hello(uint64(1 + i))
		h.Lanes = wire.MaxLanes
		p := r.dialFrom(t, ip(2))
		_ = p.greet(t, h)
		_ = p.Close()
	}
	wait(t, "dead connections", func() bool { st := r.Stats(); return st.Up+st.Handshakes == 0 })
	if n := r.Stats().Lanes; n != 64*wire.MaxLanes {
		t.Errorf("%d lanes", n)
	}
	heap := func() int64 {
		var m runtime.MemStats
		for range 3 { // what pools keep goes with the third
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	with := heap()
	_ = r.Close("the worker closes")
	r.links = nil
	if held := with - heap(); held > bound || held < 64<<10 {
		t.Errorf("%d bytes were held, the bound is %d", held, bound)
	}
}

// Real sockets: connections that never finish their HELLO, from the frontend's own address, hold no place that a
// frontend needs which comes back.
func TestUnfinishedHandshakesOnSockets(t *testing.T) {
	for _, plane := range []string{transport.PlaneTCP, transport.PlaneTLS, transport.PlaneQUIC} {
		t.Run(plane, func(t *testing.T) {
			id, front := socket(t, plane)
			_, work := socket(t, plane)
			r := connectRig(t, config(), front, work, "127.0.0.1:0")
			h := hello(1)
			if !id.IsZero() {
				h.Node = id
			}
			p := r.dial(t).up(t, h)
			many := 3 * maxHandshakes
			if plane == transport.PlaneQUIC {
				many = 40 // one socket each; enough to see that they cost nothing
			}
			for i := range many {
				r.hang(t, r.dial(t), noise[1+i%(len(noise)-1)])
			}
			for serial := range uint64(5) {
				_ = p.Close()
				h.Serial, h.PeerSecret = 2+serial, p.worker.OwnSecret
				begun := time.Now()
				p = r.dial(t).up(t, h)
				took(t, "back", time.Since(begun), 0, handshakeTimeout-time.Second)
			}
			if st := r.Stats(); st.Handshakes > maxHandshakes {
				t.Errorf("%+v", st)
			}
		})
	}
}

func v6(i int) net.Addr {
	return &net.UDPAddr{IP: net.IP{0x20, 1, 0xd, 0xb8, byte(i >> 16), byte(i >> 8), byte(i), 0, 1, 2, 3, 4, 5, 6, 7,
		byte(i)}, Port: 1}
}

func socket(t testing.TB, plane string) (id transport.NodeID, tr transport.Transport) {
	t.Helper()
	i, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	switch plane {
	case transport.PlaneQUIC:
		tr, err = quic.New(quic.Config{Identity: i})
	case transport.PlaneTLS:
		tr, err = tcp.New(tcp.Config{Identity: i, TLS: true})
	default:
		if tr, err = tcp.New(tcp.Config{}); err != nil {
			t.Fatal(err)
		}
		return id, tr
	}
	if err != nil {
		t.Fatal(err)
	}
	return i.ID, tr
}
