package deploytest

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
	apps "k8s.io/api/apps/v1"
)

// unit is a unit file: section.key -> values in order.
type unit map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	f, err := os.Open(lab.Deploy("systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	u, section := make(unit), ""
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		switch k, v, ok := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case ok:
			u[section+"."+k] = append(u[section+"."+k], v)
		default:
			t.Errorf("%s: %q", name, line)
		}
	}
	return u
}

func (u unit) one(t *testing.T, key string) string {
	t.Helper()
	if len(u[key]) != 1 {
		t.Fatalf("%s stands %d times in the unit", key, len(u[key]))
	}
	return u[key][0]
}

// envFile reads a file of EnvironmentFile=.
func envFile(t *testing.T, name string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(lab.Deploy("systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			t.Errorf("%s: %q", name, line)
		}
		out[k] = v
	}
	return out
}

func TestUnits(t *testing.T) {
	for file, prog := range map[string]string{"laneway-frontend.service": "frontend",
		"laneway-mockworker@.service": "mockworker"} {
		u := readUnit(t, file)
		if u.one(t, "Service.Type") != "notify" || u.one(t, "Service.NotifyAccess") != "main" {
			t.Errorf("%s: not Type=notify from the main process", file)
		}
		expand := strings.NewReplacer("%H", "host", "%i", "0")
		env := make(map[string]string)
		for _, e := range u["Service.EnvironmentFile"] {
			e = expand.Replace(strings.TrimPrefix(e, "-"))
			for k, v := range envFile(t, filepath.Base(e)) {
				env[k] = v
			}
		}
		if len(env) < 3 {
			t.Errorf("%s: the example of its environment is %v", file, env)
		}
		line := strings.Fields(expand.Replace(u.one(t, "Service.ExecStart")))
		if filepath.Base(line[0]) != prog {
			t.Errorf("%s starts %s", file, line[0])
		}
		acceptable(t, file, prog, line[1:], env)
		listens(t, prog, settings(t, prog, line[1:], env))

		need := leaving
		for _, a := range line {
			for _, flag := range []string{"--drain-grace=", "--drain-timeout="} {
				if v, ok := strings.CutPrefix(a, flag); ok {
					need += duration(t, v)
				}
			}
		}
		if stop := duration(t, u.one(t, "Service.TimeoutStopSec")); stop < need {
			t.Errorf("%s: TimeoutStopSec=%v, leaving may take %v", file, stop, need)
		}
		wait := duration(t, settings(t, prog, line[1:], env)["wait-for-discovery"])
		if start := duration(t, u.one(t, "Service.TimeoutStartSec")); start <= wait {
			t.Errorf("%s: TimeoutStartSec=%v, etcd and NATS are waited for %v", file, start, wait)
		}
		if n := atoi(t, u.one(t, "Service.LimitNOFILE")); n < 65536 {
			t.Errorf("%s: LimitNOFILE=%d", file, n)
		}
	}
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestNotify plays systemd for both programs: READY=1 when they serve, WATCHDOG=1 while they live, STOPPING=1 when they
// leave.
func TestNotify(t *testing.T) {
	sockets := make(map[string]*net.UnixConn)
	c := startCluster(t, clusterOptions{processes: 1, workersEach: 2, options: func(name string) lab.Options {
		path := filepath.Join(t.TempDir(), "notify")
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		sockets[name] = conn
		return lab.Options{Name: name, Env: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=" +
			strconv.Itoa(1_000_000)}}
	}})
	wait := func(name, want string) {
		t.Helper()
		conn := sockets[name]
		if err := conn.SetReadDeadline(time.Now().Add(60 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				t.Fatalf("%s did not say %s: %v", name, want, err)
			}
			if strings.HasPrefix(string(b[:n]), want) {
				return
			}
		}
	}
	for name, p := range map[string]*lab.Process{"worker-0": c.workers[0], "frontend": c.frontend} {
		wait(name, "READY=1\nSTATUS=")
		for range 3 {
			wait(name, "WATCHDOG=1")
		}
		if err := p.Term(90 * time.Second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wait(name, "STOPPING=1\nSTATUS=")
	}
}

// TestBuffersFitTheKernelSettings: what the programs ask for by default is what the host's settings allow, in both
// places that set them.
func TestBuffersFitTheKernelSettings(t *testing.T) {
	b, err := os.ReadFile(lab.Deploy("sysctl.d", "90-laneway.conf"))
	if err != nil {
		t.Fatal(err)
	}
	sysctl := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, " = ")
		if !ok {
			t.Errorf("90-laneway.conf: %q", line)
			continue
		}
		sysctl[k] = v
		// The kernel has it: a misspelt name is no setting.
		if _, err := os.Stat("/proc/sys/" + strings.ReplaceAll(k, ".", "/")); err != nil {
			t.Errorf("90-laneway.conf: %v", err)
		}
	}
	flags := settings(t, "frontend", nil, nil)
	for flag, key := range map[string]string{"udp-recv-buffer": "net.core.rmem_max",
		"udp-send-buffer": "net.core.wmem_max"} {
		mib, ok := strings.CutSuffix(flags[flag], "MiB")
		if !ok {
			t.Fatalf("--%s is %q", flag, flags[flag])
		}
		if asked := atoi(t, mib) << 20; atoi(t, sysctl[key]) < asked {
			t.Errorf("%s = %s caps --%s %d", key, sysctl[key], flag, asked)
		}
	}
	// Workers' ports are not handed out to others.
	low, _, _ := strings.Cut(sysctl["net.ipv4.ip_local_port_range"], " ")
	if atoi(t, low) <= 7403 {
		t.Errorf("ports from %s on are handed out to clients, workers listen on 7400 to 7403", low)
	}
	// The DaemonSet raises the same settings to the same values.
	sets := pick[apps.DaemonSet](render(t, "node-tuning"))
	if len(sets) != 1 {
		t.Fatalf("%d DaemonSets", len(sets))
	}
	raised := 0
	for line := range strings.Lines(strings.Join(sets[0].Spec.Template.Spec.InitContainers[0].Command, "\n")) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "raise" {
			raised++
			if sysctl[f[1]] != f[2] {
				t.Errorf("the DaemonSet raises %s to %s, 90-laneway.conf to %q", f[1], f[2], sysctl[f[1]])
			}
		}
	}
	if raised != 3 {
		t.Errorf("the DaemonSet raises %d settings", raised)
	}
}
