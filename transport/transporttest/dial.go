package transporttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// nobody is an address where a listener was.
func nobody(t *testing.T, f Factory) string {
	t.Helper()
	tr, _ := node(t, f)
	ln, err := tr.Listen(t.Context(), f.Bind, 1)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	address := ln.Endpoints()[0].String()
	ln.Close()
	return address
}

// dial dials on a goroutine of its own and gives the error.
func dial(ctx context.Context, tr transport.Transport, req transport.DialRequest) <-chan error {
	c := make(chan error, 1)
	go func() {
		conn, err := tr.Dial(ctx, req)
		if err == nil {
			conn.Close()
		}
		c <- err
	}()
	return c
}

func testDialNobody(t *testing.T, f Factory) {
	tr, _ := node(t, f)
	address := nobody(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err := must(t, dial(ctx, tr, transport.DialRequest{Address: address}), "a dial to nobody")
	if err == nil {
		t.Fatal("a dial to nobody went through")
	}
	if !strings.Contains(err.Error(), address) {
		t.Errorf("error %q does not name %s", err, address)
	}
	if c := tr.Counters(); c.DialErrors != 1 || c.Dials != 0 {
		t.Errorf("%d dials and %d errors are counted, want 0 and 1", c.Dials, c.DialErrors)
	}
	if s := tr.Sockets(); len(s) != 0 {
		t.Errorf("a failed dial left sockets: %+v", s)
	}
}

func testDialContext(t *testing.T, f Factory) {
	tr, _ := node(t, f)
	req := transport.DialRequest{Address: f.Silent(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := must(t, dial(ctx, tr, req), "a dial with a deadline"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial: %v, want context.DeadlineExceeded", err)
	} else if !strings.Contains(err.Error(), req.Address) {
		t.Errorf("error %q does not name %s", err, req.Address)
	}
	ctx, cancel = context.WithCancel(t.Context())
	c := dial(ctx, tr, req)
	cancel()
	if err := must(t, c, "a cancelled dial"); !errors.Is(err, context.Canceled) {
		t.Errorf("dial: %v, want context.Canceled", err)
	}
	if err := must(t, dial(ctx, tr, req), "a dial with an ended context"); !errors.Is(err, context.Canceled) {
		t.Errorf("dial with an ended context: %v, want context.Canceled", err)
	}
}

func testDialClose(t *testing.T, f Factory) {
	tr, _ := node(t, f)
	c := dial(t.Context(), tr, transport.DialRequest{Address: f.Silent(t)})
	time.Sleep(20 * time.Millisecond) // to let it begin; the outcome is the same if it does not
	tr.Close()
	if err := must(t, c, "a dial on a closed transport"); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("dial: %v, want ErrClosed", err)
	}
}

func testDialBadAddress(t *testing.T, f Factory) {
	tr, _ := node(t, f)
	for _, address := range []string{"", "nohost", "host:port:more", "127.0.0.1:70000"} {
		err := must(t, dial(t.Context(), tr, transport.DialRequest{Address: address}), "a dial to a bad address")
		if err == nil {
			t.Errorf("a dial to %q went through", address)
		} else if !strings.Contains(err.Error(), address) {
			t.Errorf("error %q does not name %q", err, address)
		}
	}
}

func testRightPin(t *testing.T, f Factory) {
	r := newRig(t, f, 1)
	d, a := r.lane(t, 0)
	di, ai := d.Info(), a.Info()
	if !f.Proves {
		if di.Proven || ai.Proven || !di.Peer.IsZero() || !ai.Peer.IsZero() {
			t.Errorf("a plane that proves nothing says %+v and %+v", di, ai)
		}
		return
	}
	if !di.Proven || di.Peer != r.acceptorID {
		t.Errorf("the dialler sees %v (proven %v), want %v", di.Peer, di.Proven, r.acceptorID)
	}
	if !ai.Proven || ai.Peer != r.dialerID {
		t.Errorf("the acceptor sees %v (proven %v), want %v", ai.Peer, ai.Proven, r.dialerID)
	}
}

func testWrongPin(t *testing.T, f Factory) {
	r := newRig(t, f, 1)
	req := r.request(0)
	req.Peer = transport.NodeID{0xba, 0xd}
	err := must(t, dial(t.Context(), r.dialer, req), "a dial with a wrong pin")
	if !f.Proves {
		if err != nil {
			t.Errorf("a plane that proves nothing refused a pin: %v", err)
		}
		return
	}
	var wrong *transport.IdentityError
	if !errors.As(err, &wrong) {
		t.Fatalf("dial: %v, want an *IdentityError", err)
	}
	if wrong.Address != req.Address || wrong.Want != req.Peer || wrong.Got != r.acceptorID {
		t.Errorf("the error says %+v", wrong)
	}
	r.lane(t, 0) // a lane with the right pin still comes through
	req.Peer = transport.NodeID{}
	if err := must(t, dial(t.Context(), r.dialer, req), "a dial without a pin"); err != nil {
		t.Errorf("dial without a pin: %v", err)
	}
}
