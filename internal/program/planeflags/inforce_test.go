package planeflags

import (
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/transport"
)

// TestEveryFlagHasAValueInForce holds the list against the flags, and looks at those that the kernel decides.
func TestEveryFlagHasAValueInForce(t *testing.T) {
	f, err := parse(t, "--response-plane=quic,tls", "--quic-lanes=4", "--tls-ca=a", "--tls-cert=b", "--tls-key=c",
		"--peer-name=d")
	if err != nil {
		t.Fatal(err)
	}
	sockets := []transport.SocketInfo{
		{Plane: "quic", Role: transport.RoleLane, RecvAsked: 8 << 20, RecvGranted: 416 << 10, SendAsked: 4 << 20,
			SendGranted: 8 << 20, StreamWindow: 104 << 10, MaxMTU: 1452, GRO: true},
		{Plane: "quic", Role: transport.RoleEndpoint, RecvAsked: 8 << 20, RecvGranted: 16 << 20, SendAsked: 4 << 20,
			SendGranted: 8 << 20, StreamWindow: 1 << 20, MaxMTU: 1452, GRO: true, GSO: true},
	}
	got := make(map[string]Setting)
	for _, s := range f.Settings().InForce(sockets) {
		got[s.Name] = s
	}
	for _, name := range f.app.Group(group).Names() {
		if name == "tcp-lanes" || name == "quic-lanes" {
			continue // stand with lanes
		}
		if _, ok := got[name]; !ok {
			t.Errorf("--%s is not reported", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s is reported and no flag", name)
	}
	for _, s := range f.Settings().InForce(sockets) {
		got[s.Name] = s
	}
	for name, want := range map[string]string{
		"lanes": "quic 4, tls 1", "server-endpoints": "quic 1, tls 0",
		"udp-recv-buffer": "416KiB to 16MiB granted, clamped on 1 of 2 sockets",
		"udp-send-buffer": "8MiB granted", "tcp-recv-buffer": unknown, "max-mtu": "discovery up to 1452",
		"quic-stream-window": "104KiB to 1MiB",
		"quic-gro":           "on", "quic-gso": "on 1 of 2 sockets", "peer-name": "d", "shrink-threshold": "1MiB",
	} {
		if got[name].InForce != want {
			t.Errorf("%s is %q in force, want %q", name, got[name].InForce, want)
		}
	}
	plain, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plain.Settings().InForce(nil) {
		if s.Name == "tls-ca" && s.InForce != "pins" || strings.HasPrefix(s.Name, "udp-") && s.InForce != unknown {
			t.Errorf("%+v", s)
		}
	}
}

// TestSocketsTellWhatIsInForce asks real sockets of every plane.
func TestSocketsTellWhatIsInForce(t *testing.T) {
	f, err := parse(t, "--response-plane=quic,tls", "--bind-addr=127.0.0.1:0", "--server-endpoints=2",
		"--udp-recv-buffer=64KiB", "--udp-send-buffer=32KiB",
		"--tcp-recv-buffer=128KiB", "--max-mtu=1300", "--quic-gro=off", "--quic-gso=off")
	if err != nil {
		t.Fatal(err)
	}
	s := f.Settings()
	all, _ := build(t, s, nil)
	var sockets []transport.SocketInfo
	for _, tr := range all {
		if _, err := tr.Listen(t.Context(), s.BindAddr, s.ServerEndpoints); err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, tr.Sockets()...)
	}
	want := map[string]string{
		"server-endpoints": "quic 2, tls 2", "udp-recv-buffer": "128KiB granted", "udp-send-buffer": "64KiB granted",
		"tcp-recv-buffer": "256KiB granted",
		"max-mtu":         "1300", "quic-stream-window": "64KiB", "quic-gro": "off", "quic-gso": "off",
	}
	for _, got := range s.InForce(sockets) {
		if w, ok := want[got.Name]; ok && got.InForce != w {
			t.Errorf("%s is %q in force, want %q", got.Name, got.InForce, w)
		}
	}
}
