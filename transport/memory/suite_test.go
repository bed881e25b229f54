package memory

import (
	"sync/atomic"
	"testing"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

func TestSuite(t *testing.T) {
	for name, cfg := range map[string]Config{
		"Plain":    {},
		"Proves":   {Proves: true},
		"TryWrite": {TryWrite: true, Buffer: 10_000},
		"Named":    {Plane: transport.PlaneTCP},
	} {
		t.Run(name, func(t *testing.T) { suite(t, cfg) })
	}
}

func suite(t *testing.T, cfg Config) {
	n := NewNetwork(cfg)
	const silent = "silent.local:1"
	n.Silence(silent)
	var last atomic.Uint32
	transporttest.Run(t, transporttest.Factory{
		Plane: n.cfg.Plane,
		New: func(testing.TB) (transport.Transport, transport.NodeID) {
			id := transport.NodeID{byte(last.Add(1)), byte(last.Load() >> 8), 1}
			return n.Transport(id), id
		},
		Bind:   "mem.local:0",
		Silent: func(testing.TB) string { return silent },
		Proves: cfg.Proves,
	})
}
