package pipe

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// TestReadHello reads the first record and not a byte more, whatever parts it comes in.
func TestReadHello(t *testing.T) {
	hello := wire.AppendHello(nil, &wire.HelloBody{Lowest: 1, Highest: 1, Lanes: 2, Lane: 1, Serial: 7, Received: 99})
	longer := append(bytes.Clone(hello), "a later version's"...)
	wire.PutHeader(longer, wire.Hello, len(longer)-wire.HeaderSize, 0)
	tooLong := wire.AppendHeader(nil, wire.Hello, wire.MaxControl+1, 0)
	isWire := func(err error) bool { e := new(wire.Error); return errors.As(err, &e) }
	for _, c := range []struct {
		name  string
		b     []byte
		fails func(error) bool // nil: it is read
	}{
		{"a HELLO", hello, nil},
		{"of a later version", longer, nil},
		{"half a HELLO", hello[:50], func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"half a header", hello[:3], func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"nothing", nil, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"too long", tooLong, isWire},
		{"another record", wire.AppendAck(nil, 1), isWire},
		{"another magic", append(bytes.Clone(hello[:8]), make([]byte, wire.HelloSize)...), isWire},
		{"GOAWAY", wire.AppendGoAway(nil, wire.AwayLimit, "full"), func(err error) bool {
			away := new(AwayError)
			return errors.As(err, &away) && away.Code == wire.AwayLimit && away.Text == "full"
		}},
		{"an empty GOAWAY", wire.AppendHeader(nil, wire.GoAway, 0, 0), isWire},
		{"TLS", []byte{22, 3, 1, 2, 0, 1, 0, 1, 252}, func(err error) bool {
			other := new(transport.ProtocolError)
			return errors.As(err, &other) && isWire(err)
		}},
		{"an alert, and the end", []byte{21, 3, 3, 0, 2, 2, 70}, func(err error) bool {
			other := new(transport.ProtocolError)
			return errors.As(err, &other)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				behind := "and more"
				if c.fails != nil {
					behind = ""
				}
				l := newLink(seed, 1<<20, [2]int{-1, -1})
				conn := &feed{linkEnd{l, 0}, append(bytes.Clone(c.b), behind...), rand.New(rand.NewPCG(seed, 1))}
				h, err := ReadHello(conn)
				switch {
				case c.fails != nil && !c.fails(err):
					t.Fatalf("the error is %v", err)
				case c.fails == nil && (err != nil || h.Serial != 7 || h.Received != 99 || string(conn.b) != behind):
					t.Fatalf("read %+v, %v, and %q is left", h, err, conn.b)
				}
			}
		})
	}
}

// TestRefuse tells a peer why, and waits for it a second at most.
func TestRefuse(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newLink(1, 1<<20, [2]int{-1, -1}).ends(false)
			begin := time.Now()
			refused := make(chan struct{})
			go func() {
				Refuse(b, &wire.HelloBody{Lowest: 1, Highest: 1, Lanes: 1}, wire.AwayLimit, "full")
				close(refused)
			}()
			if h, err := ReadHello(a); err != nil || h.Lanes != 1 {
				t.Fatalf("HELLO: %v, %v", h, err)
			}
			away := new(AwayError)
			if _, err := ReadHello(a); !errors.As(err, &away) || away.Code != wire.AwayLimit {
				t.Fatalf("expected GOAWAY: %v", err)
			}
			if leaves {
				_ = a.Close()
			}
			<-refused
			if took := time.Since(begin); leaves && took != 0 || !leaves && took != time.Second {
				t.Errorf("it took %v", took)
			}
			_ = b.Close()
		})
	}
}

func TestSameSecrets(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	if a == b || a == [16]byte{} {
		t.Fatal("secrets repeat")
	}
	for _, c := range []struct {
		own, peer [16]byte
		want      bool
	}{{a, b, true}, {b, a, false}, {a, a, false}, {b, b, false}, {[16]byte{}, b, false}} {
		if got := SameSecrets(a, b, &wire.HelloBody{PeerSecret: c.own, OwnSecret: c.peer}); got != c.want {
			t.Errorf("%v: %v", c, got)
		}
	}
}

// TestEpoch: what was appended in an earlier epoch is not unsent.
func TestEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{})
		g.connect(newLink(1, 1<<20, [2]int{-1, -1}).ends(true))
		p := g.worker().pipe
		look := func() (uint32, int) {
			p.Lock()
			defer p.Unlock()
			return p.Epoch(), p.Unsent()
		}
		before, _ := look()
		g.worker().say(Bulk, wire.Data, 10)
		if e, unsent := look(); e != before || unsent != 18 {
			t.Errorf("epoch %d with %d bytes unsent, it was %d", e, unsent, before)
		}
		p.Flush(ByFlush)
		if e, unsent := look(); e == before || unsent != 0 {
			t.Errorf("epoch %d with %d bytes unsent after a write", e, unsent)
		}
		g.finish(1, true)
	})
}
