package planeflags

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// TestTransportsCarryBytes builds every plane from flags, on both ends, and sends bytes over a lane of each.
func TestTransportsCarryBytes(t *testing.T) {
	f, err := parse(t, "--response-plane=quic,tls,tcp", "--bind-addr=127.0.0.1:0", "--server-endpoints=2",
		"--udp-recv-buffer=256KiB", "--udp-send-buffer=128KiB", "--tcp-recv-buffer=64KiB", "--quic-gro=off")
	if err != nil {
		t.Fatal(err)
	}
	s := f.Settings()
	var warnings bytes.Buffer
	server, serverID := build(t, s, slog.New(slog.NewTextHandler(&warnings, nil)))
	client, _ := build(t, s, nil)
	if n := strings.Count(warnings.String(), "plane tcp is neither encrypted nor authenticated"); n != 1 {
		t.Errorf("%d warnings about plain TCP: %s", n, warnings.String())
	}
	for i, plane := range []string{"quic", "tls", "tcp"} {
		t.Run(plane, func(t *testing.T) {
			if server[i].Plane() != plane || client[i].Plane() != plane {
				t.Fatalf("place %d is %s and %s", i, server[i].Plane(), client[i].Plane())
			}
			exchange(t, server[i], client[i], serverID.ID, s)
		})
	}
}

func build(t *testing.T, s Settings, log *slog.Logger) ([]transport.Transport, *transport.Identity) {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Transports(id, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, tr := range all {
			if err := tr.Close(); err != nil {
				t.Errorf("close %s: %v", tr.Plane(), err)
			}
		}
	})
	return all, id
}

func exchange(t *testing.T, server, client transport.Transport, peer transport.NodeID, s Settings) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	l, err := server.Listen(ctx, s.BindAddr, s.ServerEndpoints)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Endpoints()) != 2 {
		t.Errorf("%d endpoints", len(l.Endpoints()))
	}
	out, err := client.Dial(ctx, transport.DialRequest{Address: l.Endpoints()[1].String(), Peer: peer})
	if err != nil {
		t.Fatal(err)
	}
	// before Accept: a QUIC lane becomes visible with its first byte
	if _, err := out.Write([]byte("record")); err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "record" {
		t.Fatalf("read %q, %v", got, err)
	}
	lane := false
	for _, info := range client.Sockets() {
		if info.Role != transport.RoleLane {
			continue
		}
		lane = true
		want := s.TCPRecvBuffer
		if client.Plane() == transport.PlaneQUIC {
			want = s.UDPRecvBuffer
			if info.GRO {
				t.Error("GRO is on in spite of --quic-gro=off")
			}
		}
		if info.RecvAsked != want {
			t.Errorf("the lane's receive buffer was asked to be %d, want %d", info.RecvAsked, want)
		}
	}
	if !lane {
		t.Error("the lane's socket is not listed")
	}
}

func TestTransportsRefuseUnknownPlane(t *testing.T) {
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s := Settings{Planes: []string{"quic", "carrier-pigeon"}}
	if all, err := s.Transports(id, nil); err == nil || all != nil || !strings.Contains(err.Error(),
		"--response-plane carrier-pigeon: is not known: use [tcp tls quic]") {
		t.Errorf("got %v, %v", all, err)
	}
	s = Settings{Planes: []string{"tcp", "tls"}}
	if all, err := s.Transports(nil, nil); err == nil || all != nil || !strings.Contains(err.Error(),
		"--response-plane tls: ") {
		t.Errorf("without an identity: %v, %v", all, err)
	}
}

func TestQUICIdleIsBehindThePings(t *testing.T) {
	for _, c := range []struct{ s, want time.Duration }{{time.Second, 15 * time.Second}, {time.Minute, 3 * time.Minute},
		{0, 15 * time.Second}} {
		if got := (Settings{Idle: 15 * time.Second, ActivePing: c.s}).quicIdle(); got != c.want {
			t.Errorf("active ping %v: %v, want %v", c.s, got, c.want)
		}
	}
}
