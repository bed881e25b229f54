package tcp

import (
	"testing"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

func BenchmarkLane(b *testing.B) {
	for name, cfg := range map[string]Config{"TCP": {}, "TLS": {TLS: true}} {
		f := transporttest.Factory{
			Plane: map[bool]string{false: transport.PlaneTCP, true: transport.PlaneTLS}[cfg.TLS],
			New:   func(t testing.TB) (transport.Transport, transport.NodeID) { return node(t, cfg) },
			Bind:  "127.0.0.1:0",
		}
		b.Run(name+"/Stream64KiB", func(b *testing.B) { transporttest.BenchStream(b, f, 64<<10) })
		b.Run(name+"/Echo64B", func(b *testing.B) { transporttest.BenchEcho(b, f, 64) })
		b.Run(name+"/Echo64KiB", func(b *testing.B) { transporttest.BenchEcho(b, f, 64<<10) })
	}
}
