package accept

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

func header(k wire.Kind, n int) []byte { return wire.AppendHeader(nil, k, n, 0) }

// A HELLO that is wrong is answered by a GOAWAY that says why. Nothing of it stays, the connection that the lane has
// is not touched, and a right one is welcome after it.
func TestHandshakesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(h *wire.HelloBody) []byte // changes h or returns other bytes
		code wire.GoAwayCode
		says string
	}{
		{"garbage", func(*wire.HelloBody) []byte { return []byte("GET / HTTP/1.1\r\nHost: worker\r\n\r\n") },
			wire.AwayProtocol, "before HELLO"},
		{"TLS", func(*wire.HelloBody) []byte { return []byte{22, 3, 1, 2, 0, 1, 0, 1} }, wire.AwayProtocol,
			"a record of TLS"},
		{"a record before HELLO", func(*wire.HelloBody) []byte { return wire.AppendPing(nil, wire.Ping, 1, 0) },
			wire.AwayProtocol, "PING"},
		{"too long", func(*wire.HelloBody) []byte { return header(wire.Hello, wire.MaxControl+1) }, wire.AwayProtocol,
			"2049 bytes"},
		{"too short", func(*wire.HelloBody) []byte { return append(header(wire.Hello, 20), make([]byte, 20)...) },
			wire.AwayProtocol, "20 bytes"},
		{"another magic", func(h *wire.HelloBody) []byte {
			b := wire.AppendHello(nil, h)
			b[wire.HeaderSize] ^= 1
			return b
		}, wire.AwayProtocol, "does not speak this protocol"},
		{"versions that are no range", func(h *wire.HelloBody) []byte { h.Lowest, h.Highest = 3, 2; return nil },
			wire.AwayProtocol, "3 to 2"},
		{"later versions", func(h *wire.HelloBody) []byte { h.Lowest, h.Highest = 7, 9; return nil }, wire.AwayVersion,
			"7 to 9"},
		{"no lane", func(h *wire.HelloBody) []byte { h.Lane = 2; return nil }, wire.AwayProtocol, "lane 2 of 2"},
		{"a lane that the link has not", func(h *wire.HelloBody) []byte { h.Lane, h.Lanes = 2, 3; return nil },
			wire.AwayLimit, "which has 2"},
		{"unknown link", func(h *wire.HelloBody) []byte { h.Link = 99; return nil }, wire.AwayUnknownLink,
			"unknown link 99"},
		{"a wrong own secret", func(h *wire.HelloBody) []byte { h.OwnSecret[3]++; return nil }, wire.AwayUnknownLink,
			"unknown link 1"},
		{"a wrong peer's secret", func(h *wire.HelloBody) []byte { h.PeerSecret[3]++; return nil },
			wire.AwayUnknownLink, "unknown link 1"},
		{"no peer's secret", func(h *wire.HelloBody) []byte { h.PeerSecret = [16]byte{}; return nil },
			wire.AwayUnknownLink, "secrets must be named"},
		{"another node's name", func(h *wire.HelloBody) []byte { h.Node[5] = 9; return nil }, wire.AwayUnknownLink,
			"unknown link"},
		{"a serial twice", func(h *wire.HelloBody) []byte { h.Serial = 2; return nil }, wire.AwayLimit, "serial 2"},
		{"a lower serial", func(h *wire.HelloBody) []byte { h.Serial = 1; return nil }, wire.AwayLimit, "serial 1"},
		{"one link too many", func(h *wire.HelloBody) []byte { h.Link, h.PeerSecret = 5, [16]byte{}; return nil },
			wire.AwayLimit, "1 links"},
		{"a new link that has received", func(h *wire.HelloBody) []byte {
			h.Link, h.PeerSecret, h.Received = 5, [16]byte{}, 1
			return nil
		}, wire.AwayProtocol, "1 bytes received"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config()
			cfg.MaxLinks = 1
			r := newRig(t, cfg, memory.Config{})
			first := r.dial(t).up(t, hello(1))
			p := r.dial(t).up(t, next(first, 0, 2))
			h := next(first, 0, 3)
			b := c.bad(&h)
			if b == nil {
				b = wire.AppendHello(nil, &h)
			}
			bad := r.dial(t)
			bad.send(t, b)
			_, err := pipe.ReadHello(bad)
			if err == nil { // of another version, a HELLO says which ones
				_, err = pipe.ReadHello(bad)
			}
			var away *pipe.AwayError
			if !errors.As(err, &away) || away.Code != c.code || !strings.Contains(away.Text, c.says) {
				t.Errorf("answered by %v, expected %s and %q", err, c.code, c.says)
			}
			bad.dead(t)
			p.send(t, wire.AppendPing(nil, wire.Ping, 7, 0))
			if h, _, err := p.read(); err != nil || h.Kind != wire.Pong {
				t.Errorf("the lane answers %v, %v", h.Kind, err)
			}
			if st := r.Stats(); st.Links != 1 || st.Refused[c.code.String()] != 1 {
				t.Errorf("%+v", st)
			}
			r.dial(t).up(t, next(first, 0, 4))
			if ends := r.link(t).all(); len(ends) > 0 {
				t.Errorf("%v", ends)
			}
		})
	}
}

// What the answer says.
func TestAnswer(t *testing.T) {
	cfg := config()
	r := newRig(t, cfg, memory.Config{})
	h := hello(1)
	h.Lanes, h.Lane, h.Serial = 3, 1, 77
	p := r.dial(t).up(t, h)
	k := r.link(t).link
	own, theirs := k.Secrets()
	want := wire.HelloBody{Lowest: wire.MinVersion, Highest: wire.MaxVersion, Node: workerID, Link: 1, Lane: 1,
		Lanes: 3, MaxStreams: 65536,
		Serial: 77, Log: cfg.Log, Resume: cfg.Resume, Pings: pings, OwnSecret: own, PeerSecret: h.OwnSecret}
	if p.worker != want {
		t.Errorf("the answer is\n%+v, expected\n%+v", p.worker, want)
	}
	if own == ([16]byte{}) || theirs != h.OwnSecret || k.Peer() != frontID || k.Number() != 1 || len(k.Lanes()) != 3 {
		t.Errorf("the link is %v %d with %d lanes, secrets %x %x", k.Peer(), k.Number(), len(k.Lanes()), own, theirs)
	}
	h = next(p, 2, 1)
	h.Lanes = 9 // the lane count of the first connection holds
	if q := r.dial(t).up(t, h); q.worker.Lanes != 3 {
		t.Errorf("a further lane is answered by %d lanes", q.worker.Lanes)
	}
	if n := len(r.Pipes()); n != 3 {
		t.Errorf("%d pipes", n)
	}
}

// Where the plane proves identities a HELLO cannot claim another one, and a link that was begun there is not taken
// over from where it proves none.
func TestIdentities(t *testing.T) {
	r := newRig(t, config(), memory.Config{})
	proven := transport.ConnInfo{Plane: "tls", Remote: ip(2), Peer: frontID, Proven: true}
	other := hello(1)
	other.Node = [16]byte{0xee}
	r.dialAs(t, proven).refusedAs(t, other, wire.AwayIdentity)
	p := r.dialAs(t, proven).up(t, hello(1))
	r.dialFrom(t, ip(2)).refusedAs(t, next(p, 0, 2), wire.AwayIdentity)
	r.dialAs(t, proven).up(t, next(p, 0, 3))

	open := r.dialFrom(t, ip(3)).up(t, hello(2)) // the other way is fine
	r.dialAs(t, proven).up(t, next(open, 0, 2))
}

// The first HELLO is repeated with a higher serial until its answer was read, and by nobody else, and never after
// somebody has named the worker's secret.
func TestFirstConnectionAgain(t *testing.T) {
	r := newRig(t, config(), memory.Config{})
	h := hello(1)
	lost := r.dial(t)
	lost.send(t, wire.AppendHello(nil, &h))
	wait(t, "link 1", func() bool { return r.Link(frontID, 1) != nil && r.Link(frontID, 1).Lanes()[0].Up() })
	_ = lost.Close()
	h.Serial = 2
	p := r.dial(t).up(t, h)
	if k := r.link(t).link; len(r.links) != 1 || p.worker.OwnSecret != k.own {
		t.Fatal("the repeat has made another link")
	}
	for what, change := range map[string]func(*wire.HelloBody){
		"serial": func(h *wire.HelloBody) { h.Serial = 2 }, "secret": func(h *wire.HelloBody) { h.OwnSecret[9]++ },
		"lane": func(h *wire.HelloBody) { h.Lane = 1 },
	} {
		bad := h
		bad.Serial = 3
		change(&bad)
		var away *pipe.AwayError
		if err := r.dial(t).greet(t, bad); !errors.As(err, &away) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	r.dial(t).up(t, next(p, 1, 1))
	h.Serial = 4
	r.dial(t).refusedAs(t, h, wire.AwayUnknownLink)
}

// A first HELLO whose answer cannot be written leaves a link that waits for the repeat, and is forgotten if none comes.
func TestLinkWithoutAnAnswer(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		r := newRig(t, config(), memory.Config{Buffer: 100}) // no HELLO fits, and nobody reads
		p := r.dial(t)
		h := hello(1)
		p.send(t, wire.AppendHello(nil, &h))
		begun := time.Now()
		wait(t, "link 1", func() bool { return r.Link(frontID, 1) != nil })
		s := r.link(t)
		wait(t, "the end of the handshake", func() bool { return r.Stats().Handshakes == 0 })
		took(t, "given up", time.Since(begun), handshakeTimeout-time.Millisecond, handshakeTimeout+2*time.Millisecond)
		if st := r.Stats(); st.Up != 0 {
			t.Errorf("%d lanes are up", st.Up)
		}
		time.Sleep(15 * time.Second)
		took(t, "forgotten", s.ended(t).at.Sub(begun), 30*time.Second+handshakeTimeout, 30*time.Second+handshakeTimeout+
			second)
	})
}

// What others cause is logged by few messages that never vary, so that the logger can bound them.
func TestLogLinesAreOfFewKinds(t *testing.T) {
	r := newRig(t, config(), memory.Config{})
	for i := range 300 {
		h := hello(uint64(1 + i%100))
		h.Node[1] = byte(i)
		p := r.dial(t)
		switch i % 5 {
		case 0:
			p.send(t, []byte(fmt.Sprintf("garbage %d, and more of it", i)))
		case 1:
			h.PeerSecret[0] = 1
			_ = p.greet(t, h)
		case 2:
			_ = p.greet(t, h)
			p.send(t, header(wire.Kind(0x80+i%50), 5))
			p.dead(t)
		case 3:
			_ = p.greet(t, h)
			p.send(t, wire.AppendGoAway(nil, wire.AwayClosing, fmt.Sprint("text ", i)))
			p.dead(t)
		default:
			_ = p.greet(t, h)
		}
		_ = p.Close()
	}
	r.logs.mu.Lock()
	defer r.logs.mu.Unlock()
	if len(r.logs.seen) > 6 {
		t.Errorf("%d kinds of lines: %v", len(r.logs.seen), r.logs.seen)
	}
}
