package quic

import (
	"fmt"
	"testing"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

func factory(cfg Config) transporttest.Factory {
	return transporttest.Factory{
		Plane: transport.PlaneQUIC, Network: "udp", Bind: "127.0.0.1:0",
		New: func(t testing.TB) (transport.Transport, transport.NodeID) { return node(t, cfg) },
	}
}

// shape is what a benchmark varies. buffers is what the kernel grants, where its limit allows that.
type shape struct {
	gro, gso bool
	buffers  int
	mtu      int
	load     transporttest.Load
}

const (
	clamped = 425_984 // net.core.rmem_max of 212,992
	large   = 8 << 20
)

func (s shape) String() string {
	on := map[bool]string{true: "on", false: "off"}
	return fmt.Sprintf("gro=%s/gso=%s/granted=%d/mtu=%d/%s", on[s.gro], on[s.gso], s.buffers, s.mtu, s.load)
}

func (s shape) run(b *testing.B) {
	b.Run(s.String(), func(b *testing.B) {
		f := factory(Config{DisableGRO: !s.gro, DisableGSO: !s.gso, RecvBuffer: s.buffers / 2,
			SendBuffer: s.buffers / 2, MaxMTU: s.mtu})
		transporttest.BenchStream(b, f, s.load)
	})
}

// BenchmarkSettings changes one setting at a time.
func BenchmarkSettings(b *testing.B) {
	base := shape{gro: true, gso: true, buffers: large, load: transporttest.Load{Lanes: 4, Ports: 4, Write: 64 << 10}}
	for _, change := range []func(*shape){
		func(*shape) {},
		func(s *shape) { s.gro = false },
		func(s *shape) { s.gso = false },
		func(s *shape) { s.gro, s.gso = false, false },
		func(s *shape) { s.load.Lanes, s.load.Ports = 1, 1 },
		func(s *shape) { s.load.Lanes = 2 },
		func(s *shape) { s.load.Ports = 1 },
		func(s *shape) { s.buffers = clamped },
		func(s *shape) { s.buffers, s.gro = clamped, false },
		func(s *shape) { s.buffers, s.load.Ports = clamped, 1 },
		func(s *shape) { s.mtu = 1200 },
		func(s *shape) { s.load.Write = 1 << 10 }, // the batch of a pass
	} {
		s := base
		change(&s)
		s.run(b)
	}
}

// BenchmarkFanIn has many sockets receive at once, as a frontend's do.
func BenchmarkFanIn(b *testing.B) {
	for _, sockets := range []int{8, 16, 32, 64} {
		for _, buffers := range []int{clamped, large} {
			for _, gro := range []bool{true, false} {
				shape{gro: gro, gso: true, buffers: buffers, load: transporttest.Load{Lanes: sockets, Ports: 4,
					Write: 64 << 10}}.run(b)
			}
		}
	}
}

func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{64, 64 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) { transporttest.BenchEcho(b, factory(Config{}), size) })
	}
}
