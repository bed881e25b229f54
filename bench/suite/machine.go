package suite

import (
	"context"
	"os"
	"runtime"
	"strings"

	"github.com/laneway-ai/laneway/bench/children"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// Machine is what the figures depend on. A field that cannot be read here is absent.
type Machine struct {
	OS       string            `json:"os"`
	Kernel   string            `json:"kernel,omitempty"`
	CPU      string            `json:"cpu,omitempty"`
	Cores    int               `json:"cores"`
	Memory   string            `json:"memory,omitempty"`
	Go       string            `json:"go"`
	Settings map[string]string `json:"settings,omitempty"` // of the kernel
	Env      map[string]string `json:"env,omitempty"`      // that Go programs and the QUIC library read
}

// sysctls are the settings of the kernel that move the figures.
var sysctls = []string{
	"net.core.rmem_max", "net.core.wmem_max", "net.core.rmem_default", "net.core.wmem_default",
	"net.core.default_qdisc", "net.core.netdev_max_backlog", "net.core.busy_poll",
	"net.ipv4.tcp_congestion_control", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.udp_mem",
	"net.ipv4.ip_local_port_range",
	"kernel.io_uring_disabled", "kernel.sched_rt_runtime_us", "fs.nr_open",
}

// variables of the environment that the programs' runtime and the QUIC library read.
var variables = []string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GOAMD64", "GODEBUG", "GOFLAGS", "QUIC_GO_DISABLE_GSO",
	"QUIC_GO_DISABLE_ECN"}

func machine() Machine {
	m := Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: procstat.CPUs(), Go: runtime.Version(),
		Settings: map[string]string{}, Env: map[string]string{}}
	m.Kernel, _ = procstat.Kernel()
	m.CPU, m.Memory = field("/proc/cpuinfo", "model name"), field("/proc/meminfo", "MemTotal")
	for _, name := range sysctls {
		if v, ok := procstat.Sysctl(name); ok {
			m.Settings[name] = strings.Join(strings.Fields(v), " ")
		}
	}
	for _, name := range variables {
		if v, ok := os.LookupEnv(name); ok {
			m.Env[name] = v
		}
	}
	return m
}

// field is the first value of that name in a file of lines NAME: VALUE.
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// load is the load average, "" where there is none.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if err != nil || len(f) < 3 {
		return ""
	}
	return strings.Join(f[:3], " ")
}

// Revision is that of a checkout.
type Revision struct {
	ID      string   `json:"id"`                // "unknown" without git
	Changes []string `json:"changes,omitempty"` // what differs from it, as git tells
}

func revision(ctx context.Context, root string) Revision {
	id, err := children.Output(ctx, root, "git", "rev-parse", "HEAD")
	if err != nil {
		return Revision{ID: "unknown"}
	}
	r := Revision{ID: id}
	changes, err := children.Output(ctx, root, "git", "--no-optional-locks", "status", "--porcelain",
		"--untracked-files=normal")
	if err != nil {
		return Revision{ID: id, Changes: []string{"not known: " + err.Error()}}
	}
	for line := range strings.Lines(changes) {
		r.Changes = append(r.Changes, strings.TrimSpace(line))
	}
	return r
}

// short is how the revision stands in the name of a folder.
func (r Revision) short() string {
	s := r.ID[:min(len(r.ID), 12)]
	if len(r.Changes) > 0 {
		s += "-changed"
	}
	return s
}
