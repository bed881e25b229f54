package quic

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// Many dials in one burst: quic-go's queue of connections is 32 long, so the accept loop must be quick. And the
// endpoint's receive buffer may hold the first packets of a few only: dials that all begin at once retransmit at once,
// and the same ones are lost each time.
func TestDialStormIsNotRefused(t *testing.T) {
	t.Run("128", func(t *testing.T) { storm(t, 128, 0) })
	t.Run("256 to a buffer of 64 KiB", func(t *testing.T) { storm(t, 256, 32<<10) })
}

func storm(t *testing.T, storm, buffer int) {
	a, _ := node(t, Config{})
	defer a.Close()
	b, _ := node(t, Config{RecvBuffer: buffer})
	defer b.Close()
	ln, err := b.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Endpoints()[0].String()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a busy machine under -race takes 15 s
	defer cancel()
	var wg sync.WaitGroup
	for i := range storm {
		wg.Go(func() {
			d, err := a.Dial(ctx, transport.DialRequest{Address: address, Lane: i})
			if err != nil {
				t.Errorf("dial %d: %v", i, err)
				return
			}
			if _, err := d.Write([]byte{byte(i)}); err != nil {
				t.Errorf("write %d: %v", i, err)
			}
			var back [1]byte
			if _, err := io.ReadFull(d, back[:]); err != nil || back[0] != byte(i) {
				t.Errorf("read %d: %d, %v", i, back[0], err)
			}
		})
	}
	for range storm {
		c, err := ln.Accept(ctx) // one at a time, so that lanes have to wait
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b[:]); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if c := b.Counters(); c.Accepts != uint64(storm) || c.AcceptErrors != 0 {
		t.Errorf("%+v", c)
	}
}

// TestDialsTakeTurns: of many dials to an address that does not answer, maxHandshakes are under way at once; and they
// do not keep one to another address from getting its turn.
func TestDialsTakeTurns(t *testing.T) {
	const dials = 3*maxHandshakes + 1
	const limit = time.Second
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	self, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{Identity: self, HandshakeTimeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, id := node(t, Config{})
	defer b.Close()
	ln, err := b.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var wg, dialled sync.WaitGroup
	defer wg.Wait()
	defer dialled.Wait()
	defer cancel()
	begun := time.Now()
	for i := range dials {
		dialled.Go(func() {
			_, err := a.Dial(ctx, transport.DialRequest{Address: mute.LocalAddr().String(), Lane: i})
			if err == nil {
				t.Error("a dial to an address that does not answer came through")
			}
			if ctx.Err() != nil {
				t.Errorf("dial %d ended only with the test's patience, and not by the limit, which counts from its "+
					"turn: %v", i, err)
			}
		})
	}
	// On a busy machine a dial may be out of time before it has sent anything, so not all of them are seen here.
	wg.Go(func() {
		dialled.Wait()
		mute.SetReadDeadline(time.Now().Add(limit)) // what they have sent is there
	})
	seen := map[string]bool{}
	buf := make([]byte, 2048)
	for len(seen) < dials {
		_, from, err := mute.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if seen[from.String()] {
			continue
		}
		// A place that is taken after begun is free when that dial has timed out, however busy the machine is.
		if at, soonest := time.Since(begun), time.Duration(len(seen)/maxHandshakes)*limit; at < soonest {
			t.Errorf("dial %d began after %v, expected %v at the earliest", len(seen), at, soonest)
		}
		seen[from.String()] = true
		if len(seen) == 1 { // all places there are taken, or about to be
			for { // a busy machine may need more than the limit
				c, err := a.Dial(ctx, transport.DialRequest{Address: ln.Endpoints()[0].String(), Peer: id})
				if err == nil {
					c.Close()
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("another address: %v", err)
				}
			}
		}
	}
	if len(seen) <= maxHandshakes {
		t.Errorf("%d of %d dials have begun, that is no more than one round", len(seen), dials)
	}
	dialled.Wait()
	cancel()
	wg.Wait()
	if n := len(a.turns.at); n != 0 {
		t.Errorf("places at %d addresses are kept after the last dial", n)
	}
	// A dial whose caller goes while it waits leaves no place taken.
	for range maxHandshakes {
		done, err := a.turns.take(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		defer done()
	}
	if _, err := a.Dial(ctx, transport.DialRequest{Address: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has gone: %v", err)
	}
	if p := a.turns.at["x"]; p.users != maxHandshakes || len(p.taken) != maxHandshakes {
		t.Errorf("%d users, %d places taken", p.users, len(p.taken))
	}
}
