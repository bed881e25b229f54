package planeflags

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t *testing.T, args ...string) (*Flags, error) {
	t.Helper()
	app := cli.New("prog", "test")
	app.Env, app.Stdout, app.Stderr = nil, io.Discard, io.Discard
	f := Register(app, Options{})
	return f, app.Parse(args)
}

func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	f, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Planes: []string{"quic", "tls"}, Lanes: 1, ServerEndpoints: 4, BindAddr: ":0",
		UDPRecvBuffer: 8 << 20, UDPSendBuffer: 4 << 20,
		KeepAlive: 5 * time.Second, Idle: 15 * time.Second, ActivePing: time.Second, Resume: 10 * time.Second,
		BatchGap: 2 * time.Millisecond, StreamWindow: 64 << 10, LaneLog: 4 << 20, MaxReplay: 1 << 30,
		ShrinkThreshold: 1 << 20, Urgent: true, GRO: true, GSO: true,
		TLSCurves: []string{"X25519"},
	}
	if got := f.Settings(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if args := f.Args(); len(args) != 0 {
		t.Errorf("arguments for a child with default settings: %q", args)
	}
}

func TestEveryFlagReachesSettingsAndChildren(t *testing.T) {
	args := []string{
		"--lanes=2", "--tcp-lanes=3", "--quic-lanes=4", "--server-endpoints=5", "--bind-addr=127.0.0.1:7000",
		"--advertise-addr=node-1",
		"--udp-recv-buffer=1MiB", "--udp-send-buffer=2MiB", "--tcp-recv-buffer=64KiB", "--tcp-send-buffer=128KiB",
		"--max-mtu=1300",
		"--quic-stream-window=2MiB", "--keep-alive-interval=1s", "--idle-timeout=4s", "--active-ping-interval=0s",
		"--resume-timeout=0s",
		"--lane-log=1MiB", "--max-replay-bytes=2GiB",
		"--stream-window=32KiB", "--batch-gap-max=0s", "--urgent=off", "--quic-gro=off", "--quic-gso=off",
		"--shrink-threshold=2MiB", "--dial=on-demand",
		"--tls-ca=ca.pem", "--tls-cert=node.pem", "--tls-key=node.key", "--peer-name=spiffe://c/worker",
		"--tls-curves=P-256,X25519",
	}
	f, err := parse(t, append(args, "--response-plane=tls,quic")...)
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Planes: []string{"tls", "quic"}, Lanes: 2, TCPLanes: 3, QUICLanes: 4, ServerEndpoints: 5,
		BindAddr: "127.0.0.1:7000", AdvertiseAddr: "node-1",
		UDPRecvBuffer: 1 << 20, UDPSendBuffer: 2 << 20, TCPRecvBuffer: 64 << 10, TCPSendBuffer: 128 << 10, MaxMTU: 1300,
		QUICStreamWindow: 2 << 20, KeepAlive: time.Second, Idle: 4 * time.Second, StreamWindow: 32 << 10,
		LaneLog: 1 << 20, MaxReplay: 2 << 30, DialOnDemand: true, ShrinkThreshold: 2 << 20,
		TLSCA: "ca.pem", TLSCert: "node.pem", TLSKey: "node.key", PeerName: "spiffe://c/worker",
		TLSCurves: []string{"P-256", "X25519"},
	}
	if got := f.Settings(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := f.Args(); !reflect.DeepEqual(got, args) {
		t.Errorf("arguments for a child:\n got %q\nwant %q", got, args)
	}
	if got := f.Settings().PlaneLanes(); !reflect.DeepEqual(got, map[string]int{"tcp": 3, "tls": 3, "quic": 4}) {
		t.Errorf("lanes of planes: %v", got)
	}
	if names := f.app.Group(group).Names(); len(names) != len(args)+1 {
		t.Errorf("%d flags are declared, this test sets %d", len(names), len(args)+1)
	}
}

func TestAddressesThatAreAllowed(t *testing.T) {
	for _, args := range []string{
		"--bind-addr [::1]:0", "--bind-addr [::1]:7000 --advertise-addr ::1",
		"--bind-addr 0.0.0.0:7000 --advertise-addr node-1.example",
		"--bind-addr [fe80::1%lo]:7000 --advertise-addr node-1",
		"--bind-addr :7000 --response-plane quic,tls", "--bind-addr :0 --response-plane tcp,tls",
		"--advertise-addr 127.0.0.1", "--advertise-addr fd00::1", "--bind-addr localhost:0",
	} {
		if _, err := parse(t, strings.Fields(args)...); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestBadSettings(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--lanes 17", "--lanes 17: out of range: use 1 to 16"},
		{"--max-mtu 1500",
			"--max-mtu 1500: out of range: use 1200 to 1452, or 0 = path MTU discovery up to 1452, because QUIC " +
				"needs 1200 and the QUIC library never sends more than 1452"},
		{"--response-plane quic,quik", "--response-plane quic,quik: \"quik\" is not known: use tcp, tls, quic"},
		{"--response-plane quic,quic", "names \"quic\" twice"},
		{"--batch-gap-max 6ms", "--batch-gap-max 6ms: out of range: use 0s to 5ms, 0 = off"},
		{"--stream-window 2KiB", "use 4KiB to 16MiB"},
		{"--keep-alive-interval 15s", "--keep-alive-interval 15s is not below --idle-timeout 15s"},
		{"--bind-addr :65535",
			"--bind-addr :65535 with --server-endpoints 4 ends above port 65535: use port 65532 or less"},
		{"--advertise-addr 10.0.0.1:7000", "without a port"},
		{"--advertise-addr 0.0.0.0", "is unspecified, no address that anyone can dial"},
		{"--advertise-addr 169.254.7.1", "is link-local, no address that anyone can dial"},
		{"--advertise-addr fe80::1", "is link-local"},
		{"--advertise-addr fe80::1%eth0", "is link-local"},
		{"--advertise-addr 239.1.1.1", "is multicast"},
		{"--advertise-addr ff02::1", "is multicast"},
		{"--advertise-addr 255.255.255.255", "is reserved"},
		{"--advertise-addr [::1]", "without a port"},
		{"--bind-addr 224.0.0.1:7000", "--bind-addr 224.0.0.1:7000 is multicast"},
		{"--bind-addr [fe80::1%lo]:7000", "say with --advertise-addr what they should"},
		{"--bind-addr :7000 --response-plane tcp,tls", "which the planes tcp and tls would both take"},
		{"--shrink-threshold 1KiB", "use 64KiB to 1GiB"},
		{"--tls-ca ca.pem",
			"--tls-ca without --tls-cert (this node's certificate), --tls-key (the certificate's private key), " +
				"--peer-name (the name that the other side must have)"},
		{"--tls-cert c.pem", "--tls-cert without --tls-ca (the authorities that are trusted), --tls-key"},
		{"--tls-ca a --tls-cert b --peer-name c",
			"--tls-ca, --tls-cert, --peer-name without --tls-key (the certificate's private key): "},
		{"--peer-name worker.example", "--peer-name without --tls-ca (the authorities that are trusted), "},
		{"--tls-ca a --tls-cert b --tls-key c --peer-name d --response-plane quic,tcp",
			"--tls-ca with --response-plane quic,tcp: the plane tcp shows and checks no certificate"},
		{"--tls-ca a --tls-cert b --tls-key c --peer-name a/b", "--peer-name a/b: is neither a DNS name nor a URI"},
		{"--tls-curves X25519,Curve1",
			"--tls-curves X25519,Curve1: \"Curve1\" is not known: use X25519, P-256, P-384, P-521, X25519MLKEM768"},
	} {
		if _, err := parse(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
}

// TestFixedPlanes: a program that says itself which planes run has no flag for them.
func TestFixedPlanes(t *testing.T) {
	app := cli.New("test", "tests")
	f := Register(app, Options{Planes: []string{transport.PlaneTCP}, FixedPlanes: true})
	var help bytes.Buffer
	app.WriteHelp(&help)
	if strings.Contains(help.String(), "--"+planeFlag) {
		t.Errorf("there is a flag:\n%s", help.String())
	}
	ran := false
	code := app.Run(nil, func(context.Context, *slog.Logger) error {
		ran = true
		return nil
	})
	if s := f.Settings(); code != 0 || !ran || len(s.Planes) != 1 || s.Planes[0] != transport.PlaneTCP {
		t.Errorf("exit code %d, planes %v", code, s.Planes)
	}
}
