package quic

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	for name, cfg := range map[string]Config{
		"Default":    {},
		"NoOffloads": {DisableGRO: true, DisableGSO: true},
		"Small":      {RecvBuffer: 106_496, SendBuffer: 106_496, MaxMTU: 1200, StreamWindow: 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Factory{
				Plane: transport.PlaneQUIC,
				New:   func(t testing.TB) (transport.Transport, transport.NodeID) { return node(t, cfg) },
				Bind:  "127.0.0.1:0", Network: "udp",
				Silent:            silent,
				Unfinished:        unfinished,
				Proves:            true,
				ListenerOwnsLanes: true,
			})
		})
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
	cfg.IdleTimeout = time.Minute
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr, id.ID
}

// silent is a UDP port that takes packets and never answers.
func silent(t testing.TB) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// unfinished proves its address where that is asked for, and hears nothing else.
func unfinished(t testing.TB, to string, from netip.Addr, n int) { begin(t, to, from, n, isRetry) }

// isRetry says whether a datagram is a Retry packet of QUIC version 1.
func isRetry(p []byte) bool { return len(p) > 0 && p[0]&0xf0 == 0xf0 }

// begin begins n handshakes, and hears only those datagrams of which hears is true.
func begin(t testing.TB, to string, from netip.Addr, n int, hears func([]byte) bool) {
	t.Helper()
	remote, err := net.ResolveUDPAddr("udp4", to)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
	if err != nil {
		t.Fatal(err)
	}
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	security := Config{Identity: id}.security()
	tr := &quicgo.Transport{Conn: deaf{c, hears}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			cfg := &quicgo.Config{HandshakeIdleTimeout: time.Minute}
			if _, err := tr.Dial(ctx, remote, security.Client(transport.DialRequest{}), cfg); err == nil {
				t.Error("a handshake came through without an answer")
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		tr.Close()
		c.Close()
	})
}

// deaf is a socket that hears only some datagrams.
type deaf struct {
	net.PacketConn
	hears func([]byte) bool
}

// ReadFrom implements net.PacketConn.
func (d deaf) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, from, err := d.PacketConn.ReadFrom(p)
		if err != nil || d.hears(p[:n]) {
			return n, from, err
		}
	}
}

// SetReadBuffer and SetWriteBuffer do nothing: quic-go would warn if there were none.
func (d deaf) SetReadBuffer(int) error  { return nil }
func (d deaf) SetWriteBuffer(int) error { return nil }
