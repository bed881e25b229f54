package quic

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// Many dials in one burst: quic-go's queue of connections is 32 long, so the accept loop must be quick.
func TestDialStormIsNotRefused(t *testing.T) {
	const storm = 128
	a, _ := node(t, Config{})
	defer a.Close()
	b, _ := node(t, Config{})
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
	if c := b.Counters(); c.Accepts != storm || c.AcceptErrors != 0 {
		t.Errorf("%+v", c)
	}
}
