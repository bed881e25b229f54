package quic

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/transport"
)

// Two hundred round trips of 64 KiB take under a second with any MTU that Config accepts. The bound here is ten times
// that, three times over, for machines that are busy; the log has what was measured. Under the race detector it says
// nothing of the time.
func TestRoundTripsOf64KiBWithAnyMTU(t *testing.T) {
	const size, bound = 64 << 10, 10 * time.Second
	trips := 200
	if raceDetector {
		trips = 10
	}
	for _, mtu := range []int{0, 1200, 1201, 1280, 1337, 1400, 1452} {
		_, _, _, d, acc := pair(t, Config{MaxMTU: mtu}, Config{MaxMTU: mtu})
		go func() {
			buf := make([]byte, size)
			for {
				if _, err := io.ReadFull(acc, buf); err != nil {
					return
				}
				if _, err := acc.Write(buf); err != nil {
					return
				}
			}
		}()
		buf := make([]byte, size)
		took := bound
		for try := 0; try < 3 && took >= bound; try++ {
			began := time.Now()
			for range trips {
				if _, err := d.Write(buf); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(d, buf); err != nil {
					t.Fatal(err)
				}
			}
			took = time.Since(began)
			t.Logf("mtu=%d trips=%d bytes=%d seconds=%.3f", mtu, trips, size, took.Seconds())
			if raceDetector {
				break
			}
		}
		if took >= bound && !raceDetector {
			t.Errorf("MTU %d: %d round trips took %v", mtu, trips, took)
		}
		d.Close()
	}
}

// A kernel without UDP_GRO refuses the option: the lane reads one datagram at a time, and says so.
func TestKernelWithoutGROFallsBack(t *testing.T) {
	for _, at := range []string{"dialler", "acceptor"} {
		t.Run(at, func(t *testing.T) {
			a, _ := node(t, Config{})
			defer a.Close()
			b, _ := node(t, Config{})
			defer b.Close()
			old, fresh := a, b
			if at == "acceptor" {
				old, fresh = b, a
			}
			asked := 0
			old.enableGRO = func(int) error { asked++; return unix.ENOPROTOOPT }
			ln, err := b.Listen(t.Context(), "127.0.0.1:0", 1)
			if err != nil {
				t.Fatal(err)
			}
			d, acc := lanes(t, a, ln)
			const size = 4 << 20
			for _, ends := range [][2]transport.Conn{{d, acc}, {acc, d}} {
				go ends[0].Write(make([]byte, size))
				if _, err := io.CopyN(io.Discard, ends[1], size); err != nil {
					t.Fatal(err)
				}
			}
			if s := old.Sockets()[0]; s.GRO || asked != 1 {
				t.Errorf("asked %d times: %+v", asked, s)
			}
			if s := fresh.Sockets()[0]; !s.GRO {
				t.Errorf("the other end's kernel has it: %+v", s)
			}
		})
	}
}

// A device that refuses a batch gets its datagrams one by one from then on, and the socket says so.
func TestDeviceWithoutGSOFallsBack(t *testing.T) {
	a, b, _, d, acc := pair(t, Config{}, Config{})
	s := d.(*lane).sock
	if !s.info(transport.RoleLane, 0).GSO {
		t.Skip("no UDP_SEGMENT here")
	}
	s.gsoFailed.Store(true)
	before := s.sent.Load()
	const size = 1 << 20
	go d.Write(make([]byte, size))
	if _, err := io.CopyN(io.Discard, acc, size); err != nil {
		t.Fatal(err)
	}
	if calls, least := s.sent.Load()-before, uint64(size/MaxMTU); calls < least {
		t.Errorf("%d system calls sent %d bytes, want one for each of at least %d datagrams", calls, size, least)
	}
	if a.Sockets()[0].GSO || !b.Sockets()[0].GSO {
		t.Errorf("GSO is reported as %v at the failed socket, %v at the other", a.Sockets()[0].GSO, b.Sockets()[0].GSO)
	}
}

// Every lane and every endpoint has a socket and a quic-go transport of its own, with buffers of its own.
func TestOneSocketForEachLaneAndEndpoint(t *testing.T) {
	a, _ := node(t, Config{})
	defer a.Close()
	b, _ := node(t, Config{})
	defer b.Close()
	ln, err := b.Listen(t.Context(), "127.0.0.1:0", 3)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[any]bool)
	for i := range 4 {
		d, err := a.Dial(t.Context(), transport.DialRequest{Address: ln.Endpoints()[i%3].String(), Lane: i})
		if err != nil {
			t.Fatal(err)
		}
		l := d.(*lane)
		seen[l.tr], seen[l.sock], seen[l.info.Local.(*net.UDPAddr).Port] = true, true, true
	}
	for _, e := range ln.(*listener).endpoints {
		seen[e.tr], seen[e.sock], seen[e.sock.LocalAddr().(*net.UDPAddr).Port] = true, true, true
	}
	if len(seen) != 3*7 {
		t.Errorf("%d different transports, sockets and ports, want 3 for each of 4 lanes and 3 endpoints", len(seen))
	}
	roles := make(map[string]int)
	for _, s := range append(a.Sockets(), b.Sockets()...) {
		roles[s.Role]++
	}
	if roles[transport.RoleLane] != 4 || roles[transport.RoleEndpoint] != 3 {
		t.Errorf("sockets by role: %v", roles)
	}
}

// The totals go on with what closed sockets had, and count each datagram once.
func TestCountersKeepClosedSockets(t *testing.T) {
	a, b, ln, d, acc := pair(t, Config{}, Config{})
	const size = 1 << 20
	go d.Write(make([]byte, size))
	if _, err := io.CopyN(io.Discard, acc, size); err != nil {
		t.Fatal(err)
	}
	before := [2]transport.Counters{a.Counters(), b.Counters()}
	d.Close()
	<-d.(*lane).gone // Close does not wait for long on a busy machine
	ln.Close()
	for i, tr := range []*Transport{a, b} {
		c, was := tr.Counters(), before[i]
		if c.DatagramsIn < was.DatagramsIn || c.DatagramsOut < was.DatagramsOut || c.RecvCalls < was.RecvCalls ||
			c.SendCalls < was.SendCalls {
			t.Errorf("before the close %+v, after it %+v", was, c)
		}
		if len(tr.Sockets()) != 0 {
			t.Errorf("sockets are left: %+v", tr.Sockets())
		}
	}
	if before[0].DatagramsOut < size/MaxMTU || before[1].DatagramsIn < size/MaxMTU || before[1].RecvCalls == 0 ||
		before[1].RecvCalls > before[1].DatagramsIn {
		t.Errorf("sender %+v, receiver %+v", before[0], before[1])
	}
}
