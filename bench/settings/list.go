package settings

import "github.com/laneway-ai/laneway/transport"

// Setting is one change against the default.
type Setting struct {
	Name  string
	Flags []string // of `loadgen plane`
	Env   []string
	// Build makes a binary of its own; nil: the default one.
	Build *Build
	// Baseline is the bare plane that runs instead of ours.
	Baseline string
	Planes   []string // that it has an effect on; nil = both
}

// Build is how a binary is made.
type Build struct {
	Env []string
	PGO bool // with a profile of the default load
}

var (
	tcpOnly  = []string{transport.PlaneTCP}
	quicOnly = []string{transport.PlaneQUIC}
)

// All are the settings that are tried.
func All() []Setting {
	return []Setting{
		{Name: "stream-window-16KiB", Flags: []string{"--stream-window=16KiB"}},
		{Name: "stream-window-1MiB", Flags: []string{"--stream-window=1MiB"}},
		{Name: "quic-window-256KiB", Flags: []string{"--quic-stream-window=256KiB"}, Planes: quicOnly},
		{Name: "quic-window-4MiB", Flags: []string{"--quic-stream-window=4MiB"}, Planes: quicOnly},
		{Name: "packets-1200", Flags: []string{"--max-mtu=1200"}, Planes: quicOnly},
		{Name: "packets-1452", Flags: []string{"--max-mtu=1452"}, Planes: quicOnly},
		{Name: "batch-gap-max-0", Flags: []string{"--batch-gap-max=0"}},
		{Name: "batch-gap-max-5ms", Flags: []string{"--batch-gap-max=5ms"}},
		{Name: "fixed-gap-2ms", Flags: []string{"--baseline=batched", "--baseline-interval=2ms"}, Baseline: "batched"},
		{Name: "fixed-gap-5ms", Flags: []string{"--baseline=batched", "--baseline-interval=5ms"}, Baseline: "batched"},
		{Name: "urgent-off", Flags: []string{"--urgent=off"}},
		{Name: "quic-gro-off", Flags: []string{"--quic-gro=off"}, Planes: quicOnly},
		{Name: "quic-gso-off", Flags: []string{"--quic-gso=off"}, Planes: quicOnly},
		{Name: "ecn-off", Env: []string{"QUIC_GO_DISABLE_ECN=true"}, Planes: quicOnly},
		{Name: "udp-buffers-208KiB", Flags: []string{"--udp-recv-buffer=208KiB", "--udp-send-buffer=208KiB"},
			Planes: quicOnly},
		{Name: "tcp-buffers-4MiB", Flags: []string{"--tcp-recv-buffer=4MiB", "--tcp-send-buffer=4MiB"},
			Planes: tcpOnly},
		{Name: "sockets-1", Flags: []string{"--server-endpoints=1"}, Planes: quicOnly},
		{Name: "sockets-8", Flags: []string{"--server-endpoints=8"}, Planes: quicOnly},
		{Name: "lanes-2", Flags: []string{"--lanes=2"}},
		{Name: "lanes-4", Flags: []string{"--lanes=4"}},
		{Name: "GOGC-50", Env: []string{"GOGC=50"}},
		{Name: "GOGC-400", Env: []string{"GOGC=400"}},
		{Name: "GOMAXPROCS-1", Env: []string{"GOMAXPROCS=1"}},
		{Name: "GOMAXPROCS-4", Env: []string{"GOMAXPROCS=4"}},
		{Name: "GOAMD64-v3", Build: &Build{Env: []string{"GOAMD64=v3"}}},
		{Name: "PGO", Build: &Build{PGO: true}},
	}
}

// Names are those of all settings.
func Names() (out []string) {
	for _, s := range All() {
		out = append(out, s.Name)
	}
	return out
}
