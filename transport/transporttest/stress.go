package transporttest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/laneway-ai/laneway/transport"
)

func testManyLanes(t *testing.T, f Factory) {
	const lanes, size = 64, 1 << 20
	r := newRig(t, f, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var wg sync.WaitGroup
	// The acceptor sends a lane's bytes back with the ends swapped: the dialler's number first, then random bytes.
	wg.Go(func() {
		for range lanes {
			a, err := r.ln.Accept(ctx)
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}
			wg.Go(func() {
				defer a.Close()
				var n [4]byte
				if _, err := io.ReadFull(a, n[:]); err != nil {
					t.Errorf("read: %v", err)
					return
				}
				seed := byte(binary.BigEndian.Uint32(n[:]))
				if r := send(a, seed, size, 64<<10); r.err != nil {
					t.Errorf("lane %d: write: %v", seed, r.err)
					return
				}
				if r := drain(a, -1); r.err != io.EOF {
					t.Errorf("lane %d: read: %v", seed, r.err)
				}
			})
		}
	})
	for lane := range lanes {
		wg.Go(func() {
			if err := oneOfMany(ctx, r, lane, size); err != nil {
				t.Errorf("lane %d: %v", lane, err)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	must(t, done, "64 lanes")
}

func oneOfMany(ctx context.Context, r *rig, lane, size int) error {
	d, err := r.dialer.Dial(ctx, r.request(lane))
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := d.Write(binary.BigEndian.AppendUint32(nil, uint32(lane))); err != nil {
		return err
	}
	got := drain(d, size)
	if got.err != nil {
		return fmt.Errorf("read after %d bytes: %w", got.n, got.err)
	}
	if want := expect(byte(lane), size, 64<<10); got.sum != want {
		return fmt.Errorf("sum %08x, want %08x", got.sum, want)
	}
	if err := d.CloseWrite(); err != nil {
		return err
	}
	drain(d, -1) // until the acceptor has seen the end
	return nil
}

// expect is the sum of what send writes.
func expect(seed byte, total, most int) uint32 {
	r := send(discard{}, seed, total, most)
	return r.sum
}

// discard is a lane that takes everything.
type discard struct{ transport.Conn }

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func testChurn(t *testing.T, f Factory) {
	r := newRig(t, f, 2)
	for lane := range 20 {
		d, a := r.lane(t, lane)
		if lane%2 == 0 {
			d, a = a, d
		}
		d.Close()
		wantRemote(t, "a read", must(t, start(func() result { return drain(a, -1) }), "a read").err)
		a.Close()
	}
	eventually(t, "closed lanes give back their sockets", func() bool {
		return len(r.dialer.Sockets()) == 0 && len(r.acceptor.Sockets()) == 2
	})
}

func testSocketsAndCounters(t *testing.T, f Factory) {
	const size = 100_000
	r := newRig(t, f, 2)
	d, a := r.lane(t, 1)
	sent := start(func() result { return send(a, 1, size, 10_000) })
	got := must(t, start(func() result { return drain(d, size) }), "reading")
	same(t, must(t, sent, "writing"), got)

	ds := r.dialer.Sockets()
	if len(ds) != 1 || ds[0].Role != transport.RoleLane || ds[0].Lane != 1 || ds[0].Plane != f.Plane ||
		ds[0].Port != port(t, d.Info().Local) {
		t.Errorf("the dialler's sockets: %+v", ds)
	}
	ports := make(map[int]bool)
	for _, s := range r.acceptor.Sockets() {
		if s.RecvGranted <= 0 || s.SendGranted <= 0 || s.Plane != f.Plane || s.Lane != -1 {
			t.Errorf("socket %+v", s)
		}
		if s.Role == transport.RoleEndpoint {
			ports[s.Port] = true
		}
	}
	for _, e := range r.ln.Endpoints() {
		if !ports[port(t, e)] {
			t.Errorf("endpoint %v is not among the sockets %+v", e, r.acceptor.Sockets())
		}
	}
	check := func(when string) {
		t.Helper()
		dc, ac := r.dialer.Counters(), r.acceptor.Counters()
		if dc.Dials != 1 || ac.Accepts != 1 || dc.DialErrors != 0 || ac.AcceptErrors != 0 {
			t.Errorf("%s: dialler %+v, acceptor %+v", when, dc, ac)
		}
		if dc.BytesIn != size || dc.BytesOut != 1 || ac.BytesIn != 1 || ac.BytesOut != size {
			t.Errorf("%s: bytes of the dialler %d/%d, of the acceptor %d/%d, want %d/1 and 1/%d", when, dc.BytesIn,
				dc.BytesOut, ac.BytesIn, ac.BytesOut, size, size)
		}
		if f.Plane == transport.PlaneQUIC && (dc.PacketsIn < size/1500 || dc.PacketsOut == 0 ||
			ac.PacketsOut < size/1500 || ac.PacketsIn == 0) {
			t.Errorf("%s: packets of the dialler %d/%d, of the acceptor %d/%d", when, dc.PacketsIn, dc.PacketsOut,
				ac.PacketsIn, ac.PacketsOut)
		}
	}
	check("open")
	d.Close()
	a.Close()
	check("closed")
}
