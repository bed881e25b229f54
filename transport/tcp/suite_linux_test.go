package tcp

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	for name, cfg := range map[string]Config{
		"TCP":          {},
		"TCPBuffers":   {RecvBuffer: 64 << 10, SendBuffer: 64 << 10, NotSentLowat: -1},
		"TLS":          {TLS: true},
		"TLSSmallSend": {TLS: true, SendBuffer: 32 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			f := transporttest.Factory{
				Plane: map[bool]string{false: transport.PlaneTCP, true: transport.PlaneTLS}[cfg.TLS],
				New:   func(t testing.TB) (transport.Transport, transport.NodeID) { return node(t, cfg) },
				Bind:  "127.0.0.1:0", Network: "tcp",
				Silent: silent,
				Proves: cfg.TLS,
			}
			if cfg.TLS {
				f.Unfinished = unfinished
			}
			transporttest.Run(t, f)
		})
	}
}

// unfinished connects and says nothing.
func unfinished(t testing.TB, to string, from netip.Addr, n int) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	for range n {
		c, err := d.DialContext(t.Context(), "tcp", to)
		if errors.Is(err, unix.ECONNRESET) {
			continue // it was refused, and is told before connect returns
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
}

func TestSuiteIPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		l.Close()
	}
	a, _ := node(t, Config{TLS: true})
	defer a.Close()
	ln, err := a.Listen(t.Context(), "[::1]:0", 2)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Dial(t.Context(), transport.DialRequest{Address: ln.Endpoints()[1].String()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := ln.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func node(t testing.TB, cfg Config) (*Transport, transport.NodeID) {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Identity = id
	cfg.HandshakeTimeout = 30 * time.Second // the machine may be slow
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr, id.ID
}

// silent is a port whose queue of connections is full: the kernel drops further SYNs.
func silent(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: sa.(*unix.SockaddrInet4).Port}).String()
	for { // fill the queue
		c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
}
