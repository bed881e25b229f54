package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

func valid() Config {
	return Config{Arms: []string{"tcp", "quic"}, Runs: 1, Workers: 512, Processes: 8, Concurrency: 8, Requests: 8,
		ISL: 1, OSL: 1, BindAddr: "127.0.0.1:0", ServerEndpoints: 4}
}

func TestValidateNamesEverything(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		`the arm "mux-quic" is not known: use some of [tcp tls quic mux-tcp record-quic interval-quic]`: func(c *Config) { c.Arms = []string{"mux-quic"} },
		"no arm is named":                             func(c *Config) { c.Arms = nil },
		"--workers 3 is less than --processes 8":      func(c *Config) { c.Workers = 3 },
		"at most 1024 workers, use 10 processes":      func(c *Config) { c.Workers = 10000 },
		"end at port 65539":                           func(c *Config) { c.BindAddr = "127.0.0.1:65508" },
		"--runs 0: use 1 or more":                     func(c *Config) { c.Runs = 0 },
		"--concurrency -1: use 1 or more":             func(c *Config) { c.Concurrency = -1 },
		"--processes 0: use 1 or more":                func(c *Config) { c.Processes = 0 },
		"--bind-addr nowhere: address nowhere: missi": func(c *Config) { c.BindAddr = "nowhere" },
	} {
		c := valid()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q, got %v", want, err)
		}
	}
}

func TestEnginesAreShared(t *testing.T) {
	c := Config{Workers: 11, Processes: 4}
	var got []int
	for i := range c.Processes {
		got = append(got, c.engines(i))
	}
	if !slices.Equal(got, []int{3, 3, 3, 2}) {
		t.Errorf("engines %v", got)
	}
}

func TestFixedPortsAreKeptApart(t *testing.T) {
	c := Config{BindAddr: "127.0.0.1:7000", ServerEndpoints: 4, Processes: 3}
	for i, want := range []string{"127.0.0.1:7000", "127.0.0.1:7004", "127.0.0.1:7008"} {
		if got, err := c.bindAddr(i); got != want || err != nil {
			t.Errorf("process %d listens on %s, %v", i, got, err)
		}
	}
}

func TestPortInUseIsFoundEarly(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := valid()
	c.BindAddr, c.ServerEndpoints, c.Processes, c.Arms = l.LocalAddr().String(), 1, 1, []string{"quic"}
	err = c.Preflight(t.Context())
	_, port, _ := net.SplitHostPort(c.BindAddr)
	if err == nil || !strings.Contains(err.Error(), "worker process 0 needs port "+port+", which is not free") {
		t.Errorf("error %v", err)
	}
}

func TestTooFewFilesAreFoundEarly(t *testing.T) {
	c := valid()
	c.Concurrency = 1 << 30
	var files *cli.FilesError
	if err := c.Preflight(t.Context()); !errors.As(err, &files) || !strings.Contains(err.Error(),
		"--concurrency 1073741824") {
		t.Errorf("error %v", err)
	}
}

func TestServersThatAreNotThereAreFoundEarly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	l.Close()
	c := valid()
	c.EtcdEndpoints, c.NATSURL = redact.URLs("http://"+gone), redact.New("nats://"+gone)
	err = c.Preflight(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--etcd-endpoints") || !strings.Contains(err.Error(),
		"--nats-url") || strings.Count(err.Error(), gone) < 2 {
		t.Errorf("error %v", err)
	}
}

func TestRunsAreNumberedOn(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		dir  string
		make []string
		want int
	}{{filepath.Join(dir, "none"), nil, 1}, {dir, []string{"quic-x", "other-9"}, 1}, {dir, []string{"tcp-2"}, 3},
		{dir, []string{"quic-10"}, 11}} {
		for _, m := range c.make {
			if err := os.Mkdir(filepath.Join(dir, m), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := nextNumber(c.dir, []string{"tcp", "quic"}); n != c.want || err != nil {
			t.Errorf("after %v: %d, %v, expected %d", c.make, n, err, c.want)
		}
	}
}

func TestAttributeOfALogLine(t *testing.T) {
	for _, c := range []struct{ line, key, want string }{
		{"time=x msg=serving http=127.0.0.1:1 admin=[::1]:2\n", "admin", "[::1]:2"},
		{"time=x msg=serving http=127.0.0.1:1 admin=[::1]:2\n", "http", "127.0.0.1:1"},
		{`time=x name="a \"b" admin="c d"` + "\n", "name", `a "b`},
		{"time=x badmin=1\n", "admin", ""},
		{"time=x admin=\n", "admin", ""},
	} {
		if got, ok := attribute(c.line, c.key); got != c.want || ok != (c.want != "") {
			t.Errorf("%s of %q is %q, %v", c.key, c.line, got, ok)
		}
	}
}

func TestTailOfALongLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	text := strings.Repeat("filler that is longer than what is read\n", 4000) + "last but one\n\nlast without end"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := tail(path, 2); !slices.Equal(got, []string{"last but one", "last without end"}) {
		t.Errorf("%q", got)
	}
	if got := tail(path+"none", 2); got != nil {
		t.Errorf("%q", got)
	}
}

func TestProgramsFromADirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LANEWAY_DEVSERVERS", "")
	for _, name := range []string{"frontend", "loadgen"} {
		if err := os.WriteFile(filepath.Join(dir, name+childproc.ExeSuffix), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := FindPrograms(dir, true)
	if err == nil || !strings.Contains(err.Error(), "mockworker") || !strings.Contains(err.Error(), "devservers") ||
		strings.Contains(err.Error(), "program frontend") {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mockworker"+childproc.ExeSuffix), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := FindPrograms(dir, false)
	if err != nil || p.Servers != "" || !strings.HasPrefix(p.Revision, "binaries ") || filepath.Dir(p.Worker) != dir {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestBuildOutsideACheckout(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := BuildPrograms(context.Background(), true, func(string) {}); err == nil ||
		!strings.Contains(err.Error(), "--bin-dir") {
		t.Errorf("error %v", err)
	}
}

func TestBuiltProgramsDoNotChange(t *testing.T) {
	cache := t.TempDir()
	from := filepath.Join(t.TempDir(), "frontend")
	if err := os.WriteFile(from, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "key")
	if err := publish([]string{from}, dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(from, []byte("two"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := publish([]string{from}, dir); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "frontend")); string(b) != "one" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	old := filepath.Join(cache, "old")
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * unusedAfter)
	for _, d := range []string{old, dir} {
		if err := os.Chtimes(d, long, long); err != nil {
			t.Fatal(err)
		}
	}
	prune(cache, "key")
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 1 || entries[0].Name() != "key" {
		t.Errorf("%v, %v", entries, err)
	}
}
