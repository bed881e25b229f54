package tcp

import (
	"fmt"
	"testing"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

func factory(secure bool) transporttest.Factory {
	f := transporttest.Factory{
		Plane: transport.PlaneTCP, Network: "tcp", Bind: "127.0.0.1:0",
		New: func(t testing.TB) (transport.Transport, transport.NodeID) { return node(t, Config{TLS: secure}) },
	}
	if secure {
		f.Plane = transport.PlaneTLS
	}
	return f
}

func BenchmarkStream(b *testing.B) {
	for _, f := range []transporttest.Factory{factory(false), factory(true)} {
		for _, load := range []transporttest.Load{{Lanes: 1, Ports: 1, Write: 64 << 10},
			{Lanes: 2, Ports: 4, Write: 64 << 10}, {Lanes: 4, Ports: 4, Write: 64 << 10},
			{Lanes: 4, Ports: 1, Write: 64 << 10}, {Lanes: 4, Ports: 4, Write: 1 << 10},
			{Lanes: 64, Ports: 4, Write: 64 << 10}} {
			b.Run("plane="+f.Plane+"/"+load.String(), func(b *testing.B) { transporttest.BenchStream(b, f, load) })
		}
	}
}

func BenchmarkEcho(b *testing.B) {
	for _, f := range []transporttest.Factory{factory(false), factory(true)} {
		for _, size := range []int{64, 64 << 10} {
			b.Run(fmt.Sprintf("plane=%s/bytes=%d", f.Plane, size),
				func(b *testing.B) { transporttest.BenchEcho(b, f, size) })
		}
	}
}
