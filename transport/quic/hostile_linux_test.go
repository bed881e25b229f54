package quic

import (
	"net/netip"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// Who dials from addresses that are not his hears no answer. An endpoint that is busy asks for a proof of address
// first, so such dials leave nothing behind, however many they are; honest ones come through meanwhile.
func TestDialsFromForgedAddressesAreNotKept(t *testing.T) {
	a, _ := node(t, Config{})
	defer a.Close()
	b, _ := node(t, Config{})
	defer b.Close()
	ln, err := b.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	e := ln.(*listener).endpoints[0]
	const forged = 8 * 250
	nothing := func([]byte) bool { return false }
	for i := range 8 {
		from := netip.AddrFrom4([4]byte{127, 0, 67, byte(1 + i)})
		begin(t, e.sock.LocalAddr().String(), from, forged/8, nothing)
	}
	for deadline := time.Now().Add(time.Minute); e.sock.in.Load() < forged; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d datagrams came of %d dials", e.sock.in.Load(), forged)
		}
	}
	for range 20 {
		lanes(t, a, ln)
		if n := e.shaking.Taken(); n > busy+1 {
			t.Fatalf("%d handshakes are kept, want at most %d", n, busy)
		}
	}
	if n := e.shaking.Taken(); n < busy/2 {
		t.Errorf("%d handshakes are kept: the endpoint was not busy", n)
	}
}

// The library's own dialler answers when it is asked for a proof of its address.
func TestDialToABusyEndpoint(t *testing.T) {
	a, _ := node(t, Config{})
	defer a.Close()
	b, id := node(t, Config{})
	defer b.Close()
	ln, err := b.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	e := ln.(*listener).endpoints[0]
	for range busy {
		e.shaking.Take(e.sock.LocalAddr(), nil)
	}
	if !e.tr.VerifySourceAddress(e.sock.LocalAddr()) {
		t.Error("the endpoint is not busy")
	}
	d, err := a.Dial(t.Context(), transport.DialRequest{Address: e.sock.LocalAddr().String(), Peer: id})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if n := e.shaking.Taken(); n > busy+1 {
		t.Errorf("%d places are taken", n)
	}
}
