package quic

import (
	"net"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/leaktest"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
