package quic

import (
	"testing"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

func BenchmarkLane(b *testing.B) {
	for name, cfg := range map[string]Config{"Default": {}, "NoGRO": {DisableGRO: true}, "NoGSO": {DisableGSO: true}, "Clamped": {RecvBuffer: 212_992}, "MTU1200": {MaxMTU: 1200}} {
		f := transporttest.Factory{
			Plane: transport.PlaneQUIC,
			New:   func(t testing.TB) (transport.Transport, transport.NodeID) { return node(t, cfg) },
			Bind:  "127.0.0.1:0",
		}
		b.Run(name+"/Stream64KiB", func(b *testing.B) { transporttest.BenchStream(b, f, 64<<10) })
		b.Run(name+"/Echo64B", func(b *testing.B) { transporttest.BenchEcho(b, f, 64) })
		b.Run(name+"/Echo64KiB", func(b *testing.B) { transporttest.BenchEcho(b, f, 64<<10) })
	}
}
