package doctor

import (
	"os"
	"testing"
)

func TestClampedBuffers(t *testing.T) {
	s := settings("quic")
	s.UDPRecvBuffer = 400 << 20 // more than any kernel's bound
	r := run(t, Config{Plane: s, DiscoveryErr: os.ErrNotExist})
	r.failures(t, "discovery")
	for _, check := range []string{"net.core.rmem_max", "quic receive buffer"} {
		f := r.find(Warn, check)
		if len(f) != 1 ||
			f[0].Fix != "sysctl -w net.core.rmem_max=419430400, and to keep it: echo net.core.rmem_max=419430400 >> "+
				"/etc/sysctl.d/90-laneway.conf" {
			t.Errorf("%s: %+v", check, f)
		}
	}
	r.want(t, OK, 1, "quic send buffer")
}
