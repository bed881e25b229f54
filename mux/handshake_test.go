package mux

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// A HELLO that is wrong is answered by a GOAWAY that says why; nothing of it stays, and a right one is welcome after it.
func TestHandshakesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(f *rawFront, h *wire.HelloBody) []byte // changes h or returns other bytes
		code wire.GoAwayCode
		says []string
	}{
		{"garbage", func(*rawFront, *wire.HelloBody) []byte { return []byte("GET / HTTP/1.1\r\nHost: worker\r\n\r\n") }, wire.AwayProtocol, []string{"before HELLO"}},
		{"a record before HELLO", func(*rawFront, *wire.HelloBody) []byte { return wire.AppendPing(nil, wire.Ping, 1) }, wire.AwayProtocol, []string{"PING", "before HELLO"}},
		{"HELLO that is too long", func(*rawFront, *wire.HelloBody) []byte { return header(wire.Hello, wire.MaxControl+1, 0) }, wire.AwayProtocol, []string{"2049 bytes"}},
		{"HELLO that is too short", func(*rawFront, *wire.HelloBody) []byte { return append(header(wire.Hello, 20, 0), make([]byte, 20)...) }, wire.AwayProtocol, []string{"20 bytes"}},
		{"another magic", func(_ *rawFront, h *wire.HelloBody) []byte {
			b := wire.AppendHello(nil, h)
			b[wire.HeaderSize] ^= 1
			return b
		}, wire.AwayProtocol, []string{"does not speak this protocol"}},
		{"versions that are no range", func(_ *rawFront, h *wire.HelloBody) []byte { h.Lowest, h.Highest = 3, 2; return nil }, wire.AwayProtocol, []string{"3 to 2"}},
		{"later versions", func(_ *rawFront, h *wire.HelloBody) []byte { h.Lowest, h.Highest = 7, 9; return nil }, wire.AwayVersion, []string{"7 to 9", fmt.Sprintf("%d to %d", wire.MinVersion, wire.MaxVersion)}},
		{"unknown link", func(_ *rawFront, h *wire.HelloBody) []byte { h.Link = 99; return nil }, wire.AwayUnknownLink, []string{"unknown link 99"}},
		{"a wrong own secret", func(_ *rawFront, h *wire.HelloBody) []byte { h.OwnSecret[3]++; return nil }, wire.AwayUnknownLink, []string{"unknown link 1"}},
		{"a wrong peer's secret", func(_ *rawFront, h *wire.HelloBody) []byte { h.PeerSecret[3]++; return nil }, wire.AwayUnknownLink, []string{"unknown link 1"}},
		{"no peer's secret", func(_ *rawFront, h *wire.HelloBody) []byte { h.PeerSecret = [16]byte{}; return nil }, wire.AwayUnknownLink, []string{"must name its secrets"}},
		{"another node's name", func(_ *rawFront, h *wire.HelloBody) []byte { h.Node[5] = 9; return nil }, wire.AwayUnknownLink, []string{"unknown link"}},
		{"a serial twice", func(f *rawFront, h *wire.HelloBody) []byte { h.Serial = 1; return nil }, wire.AwayLimit, []string{"serial 1"}},
		{"one link too many", func(_ *rawFront, h *wire.HelloBody) []byte { h.Link, h.PeerSecret = 5, [16]byte{}; return nil }, wire.AwayLimit, []string{"1 links"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newRawFront(t, Config{MaxLinks: 1}, memory.Config{})
			f.lane(t)
			h := f.hello()
			b := c.bad(f, &h)
			if b == nil {
				b = wire.AppendHello(nil, &h)
			}
			l := f.dial(t)
			l.send(t, b)
			l.pump()
			r, ok := l.await(t, "GOAWAY", ofKind(wire.GoAway))
			if !ok {
				t.Fatal("the lane was closed without a word")
			}
			l.dead(t)
			code, text, err := wire.ParseGoAway(r.body)
			if err != nil || code != c.code {
				t.Errorf("code %s (%v), expected %s: %s", code, err, c.code, text)
			}
			for _, s := range c.says {
				if !strings.Contains(text, s) {
					t.Errorf("the text does not say %q: %s", s, text)
				}
			}
			if n := f.send.Stats().Links; n != 1 {
				t.Errorf("%d links", n)
			}
			f.lane(t)
		})
	}
}

// Where the plane proves identities, a HELLO cannot claim another one.
func TestHelloOfAnotherNode(t *testing.T) {
	f := newRawFront(t, Config{}, memory.Config{Proves: true})
	l := f.dial(t)
	h := f.hello()
	h.Node = [16]byte{0xee}
	var away *goAwayError
	if err := f.greet(t, l, h); !errors.As(err, &away) || away.code != wire.AwayIdentity {
		t.Fatalf("answer: %v", err)
	}
	f.lane(t)
}

// What a worker may answer wrongly; the Receiver says why, does not come up, and goes on trying.
func TestAnswersThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(h *wire.HelloBody) []byte
		as     any
		says   []string
	}{
		{"garbage", func(*wire.HelloBody) []byte { return []byte("SSH-2.0-OpenSSH_9.6\r\n") }, new(*wire.Error), []string{"before HELLO"}},
		{"DATA", func(*wire.HelloBody) []byte { return data(wire.Data, 256, []byte("x")) }, new(*wire.Error), []string{"DATA", "before HELLO"}},
		{"later versions", func(h *wire.HelloBody) []byte { h.Lowest, h.Highest = 7, 9; return wire.AppendHello(nil, h) }, new(*wire.Error),
			[]string{"7 to 9", fmt.Sprintf("%d to %d", wire.MinVersion, wire.MaxVersion)}},
		{"another node", func(h *wire.HelloBody) []byte { h.Node[0]++; return wire.AppendHello(nil, h) }, new(*transport.IdentityError), nil},
		{"another serial", func(h *wire.HelloBody) []byte { h.Serial++; return wire.AppendHello(nil, h) }, new(*wire.Error), []string{"another HELLO"}},
		{"another link", func(h *wire.HelloBody) []byte { h.Link++; return wire.AppendHello(nil, h) }, new(*wire.Error), []string{"another HELLO"}},
		{"another secret", func(h *wire.HelloBody) []byte { h.PeerSecret[0]++; return wire.AppendHello(nil, h) }, new(*wire.Error), []string{"another HELLO"}},
		{"GOAWAY", func(*wire.HelloBody) []byte { return wire.AppendGoAway(nil, wire.AwayLimit, "full") }, new(*goAwayError), []string{"limit", "full"}},
		{"half a HELLO, then the end", nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w *rawWorker
			if c.answer == nil {
				w = newRawWorker(t, Config{}, memory.Config{}, func(h *wire.HelloBody) []byte { return wire.AppendHello(nil, h)[:40] })
				stop := make(chan struct{})
				var closer sync.WaitGroup
				closer.Go(func() {
					for {
						select {
						case l := <-w.lanes:
							_ = l.conn.Close()
						case <-stop:
							return
						}
					}
				})
				defer func() { close(stop); closer.Wait() }()
			} else {
				w = newRawWorker(t, Config{}, memory.Config{}, c.answer)
			}
			var st PeerState
			waitFor(t, "an error", func() bool { st, _ = w.recv.State(workerID); return st.Err != nil })
			if st.Up {
				t.Error("the link is up")
			}
			if c.as != nil && !errors.As(st.Err, c.as) {
				t.Errorf("%T: %v", st.Err, st.Err)
			}
			for _, s := range c.says {
				if !strings.Contains(st.Err.Error(), s) {
					t.Errorf("the error does not say %q: %v", s, st.Err)
				}
			}
			dials := w.recv.transports[0].Counters().Dials
			waitFor(t, "another try", func() bool { return w.recv.transports[0].Counters().Dials > dials })
		})
	}
}

// A worker may allow any number of streams; the frontend's tables grow with what it mints, not with what it is told.
func TestMaxStreamsOfAWorker(t *testing.T) {
	for _, c := range []struct {
		says uint32
		fits int
	}{{0, 0}, {3, 3}, {1<<32 - 1, 100}} {
		w := newRawWorker(t, Config{}, memory.Config{}, func(h *wire.HelloBody) []byte { h.MaxStreams = c.says; return wire.AppendHello(nil, h) })
		w.lane(t)
		for i := range 100 {
			in, err := w.recv.Mint(t.Context(), workerID, MintOptions{})
			if (err == nil) != (i < c.fits) || err != nil && !errors.Is(err, ErrBusy) {
				t.Fatalf("stream %d of %d allowed: %v", i+1, c.says, err)
			}
			if in != nil {
				defer in.Close()
			}
		}
	}
}

// 1,000 links are kept, the next one is refused by name, and each lane more than a link may have too.
func TestManyLinks(t *testing.T) {
	f := newRawFront(t, Config{}, memory.Config{})
	dial := func(link uint64, h wire.HelloBody) (*rawLane, error) {
		l := f.dial(t)
		h.Link = link
		err := f.greet(t, l, h)
		return l, err
	}
	var first *rawLane
	for i := range DefaultMaxLinks {
		l, err := dial(uint64(i+1), f.hello())
		if err != nil {
			t.Fatalf("link %d: %v", i+1, err)
		}
		if i == 0 {
			first = l
		}
	}
	var away *goAwayError
	if _, err := dial(5000, f.hello()); !errors.As(err, &away) || away.code != wire.AwayLimit {
		t.Fatalf("one link too many: %v", err)
	}
	h := f.hello()
	for i := 1; ; i++ {
		h.Serial, h.PeerSecret = uint64(10_000+i), first.peer.OwnSecret
		if _, err := dial(1, h); err != nil {
			if !errors.As(err, &away) || away.code != wire.AwayLimit || i != 2*MaxLanes {
				t.Fatalf("lane %d: %v", i+1, err)
			}
			break
		}
	}
	if n := f.send.Stats().Links; n != DefaultMaxLinks {
		t.Errorf("%d links", n)
	}
}

// A link that its frontend has left is forgotten after the hold time, with its table.
func TestLinksAreForgotten(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		l := f.lane(t)
		f.attach(t, f.terms(l, 60_000))
		begun := time.Now()
		_ = l.conn.Close()
		waitFor(t, "no link", func() bool { return f.send.Stats().Links == 0 })
		took(t, "forgotten", begun, 15*time.Second, 17*time.Second)
		terms := f.terms(l, 1)
		if _, err := f.send.Attach(wire.AppendTerms(nil, &terms)); !errors.Is(err, ErrNoLink) {
			t.Errorf("attach: %v", err)
		}
		h := f.hello()
		var away *goAwayError
		if err := f.greet(t, f.dial(t), h); !errors.As(err, &away) || away.code != wire.AwayUnknownLink {
			t.Errorf("a further lane: %v", err)
		}
	})
}

// Terms that a worker must not take.
func TestTermsThatAreRefused(t *testing.T) {
	f := newRawFront(t, Config{MaxReplay: 64 << 10}, memory.Config{})
	l := f.lane(t)
	good := f.terms(l, 1)
	for _, c := range []struct {
		name string
		bad  func(*wire.Terms)
		want error
	}{
		{"another worker", func(t *wire.Terms) { t.Worker[0]++ }, ErrStaleTerms},
		{"another frontend", func(t *wire.Terms) { t.Frontend[0]++ }, ErrNoLink},
		{"another link", func(t *wire.Terms) { t.Link++ }, ErrNoLink},
		{"a slot beyond the maximum", func(t *wire.Terms) { t.Slot = wire.MakeSlot(65537, 1) }, ErrStaleTerms},
		{"slot 0", func(t *wire.Terms) { t.Slot = 0 }, nil},
		{"number 0", func(t *wire.Terms) { t.Number = 0 }, nil},
		{"a small window", func(t *wire.Terms) { t.Window = 4095 }, nil},
		{"a large window", func(t *wire.Terms) { t.Window = 16<<20 + 1 }, nil},
		{"more than the replay bound", func(t *wire.Terms) { t.Window = 64<<10 + 1 }, ErrBusy},
	} {
		terms := good
		c.bad(&terms)
		if _, err := f.send.Attach(wire.AppendTerms(nil, &terms)); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	b := wire.AppendTerms(nil, &good)
	for name, b := range map[string][]byte{"none": nil, "half": b[:40], "one byte": b[:1]} {
		if _, err := f.send.Attach(b); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	b[1]++
	if _, err := f.send.Attach(b); !errors.Is(err, ErrTermsVersion) {
		t.Errorf("a later version: %v", err)
	}
	f.attach(t, good)
	if _, err := f.send.Attach(wire.AppendTerms(nil, &good)); !errors.Is(err, ErrStaleTerms) {
		t.Errorf("twice: %v", err)
	}
	if n := f.send.Stats().CommittedBytes; n != 64<<10 {
		t.Errorf("%d bytes are committed", n)
	}
}
