package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/cluster"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lockedBuffer is written by the programs' log copiers while a test reads it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// runApp runs the command as a user would, in this process.
func runApp(args ...string) (code int, stdout, stderr *lockedBuffer) {
	stdout, stderr = &lockedBuffer{}, &lockedBuffer{}
	return run(args, newApp(stdout, stderr)), stdout, stderr
}

func newApp(stdout, stderr *lockedBuffer) *cli.App {
	app := cli.New("cluster", "")
	app.Env, app.Stdout, app.Stderr = nil, stdout, stderr
	return app
}

// small makes a run of seconds. The first test that needs the programs builds them; on a fresh machine that takes
// minutes.
func small(dir string, more ...string) []string {
	return append([]string{"--workers=4", "--processes=2", "--concurrency=16", "--request-count=64", "--isl=16",
		"--osl=16", "--inter-token-latency=20ms",
		"--steady-after=200ms", "--artifact-dir=" + dir}, more...)
}

func TestBothArmsEndToEnd(t *testing.T) {
	dir := t.TempDir()
	before := children(t)
	nothingIsLeft, _ := remains(t)
	// One of the two worker processes holds requests back, and the load generator has a core that the frontend does not
	// have, where there are two.
	front, load := twoCores()
	code, stdout, stderr := runApp(small(dir, "--response-plane=tcp,quic", "--lanes=2", "--holders=1",
		"--allow=client-limited,not steady",
		fmt.Sprintf("--pin=frontend:%d workers:%d loadgen:%d", front, front, load))...)
	if code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, stderr, stdout)
	}
	if left := children(t); len(left) > len(before) {
		t.Errorf("processes are left: %v", left)
	}
	// Of each of the two runs: etcd, NATS, two of the frontend, five of each worker process, and lanes on the run with
	// QUIC.
	nothingIsLeft(2 * (1 + 1 + 2 + 2*5))
	for _, arm := range []string{"tcp", "quic"} {
		at := filepath.Join(dir, arm+"-1")
		if err := report.CheckCluster(at); err != nil {
			t.Errorf("%s: %v", arm, err)
		}
		r, err := report.Read(at)
		if err != nil {
			t.Fatal(err)
		}
		if r.Raw.Requests != 64 || r.Raw.Errors != 0 || r.Raw.WrongTokens == nil || *r.Raw.WrongTokens != 0 ||
			r.Raw.Audited != 64 {
			t.Errorf("%s: %d requests, %d errors, %v wrong tokens, %d verified", arm, r.Raw.Requests, r.Raw.Errors,
				r.Raw.WrongTokens, r.Raw.Audited)
		}
		if n := r.Plane.PlaneRecords[arm]; n < 64*16 || len(r.Plane.PlaneRecords) > 1 {
			t.Errorf("%s: records by plane are %v", arm, r.Plane.PlaneRecords)
		}
		for key, want := range map[string]any{"response_plane": arm, "lanes": 2.0, "workers": 4.0,
			"worker_processes": 2.0, "server_endpoints": 4.0,
			"warmup_request_count": 16.0, "inter_token_latency": "20ms", "artifact_dir": at} {
			if got := r.Config[key]; got != want {
				t.Errorf("%s: config.%s is %v, expected %v", arm, key, got, want)
			}
		}
		inForce := map[string]string{}
		for _, s := range r.Environment.Settings {
			inForce[s.Role+" "+s.Process+" "+s.Name] = s.InForce
		}
		granted := "unknown" // a run over TCP has no UDP socket
		if arm == "quic" {
			granted = cli.FormatSize(*r.Environment.Sockets[0].RecvGranted) + " granted"
		}
		for key, want := range map[string]string{"frontend frontend lanes": arm + " 2",
			"frontend frontend dial": "eager", "worker worker-0 server-endpoints": arm + " 4",
			"worker worker-0 batch-gap-max": "2ms", "worker worker-0 response-plane": arm,
			"frontend frontend udp-recv-buffer": granted} {
			if got, ok := inForce[key]; !ok || !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s is %q in force, expected %q", arm, key, got, want)
			}
		}
		if r.Holders == nil || *r.Holders != 1 {
			t.Errorf("%s: %v holders, one was made", arm, r.Holders)
		}
		want := fmt.Sprint(front)
		if pins := r.Environment.Pins; len(pins) != 6 || pins["frontend"] != want || pins["worker-1"] != want ||
			pins["etcd"] != want || pins["nats"] != want || pins["loadgen"] != fmt.Sprint(load) {
			t.Errorf("%s: pins %v", arm, pins)
		}
		if r.Marked(report.MarkSharedCores) != (front == load) || r.Environment.CPUs != procstat.CPUs() {
			t.Errorf("%s: marks %v, %d cores; frontend and load generator had the cores %d and %d", arm, r.Marks,
				r.Environment.CPUs, front, load)
		}
		if text := fmt.Sprintf("  %s, 1 holder: %s-1\n", arm, arm); !strings.Contains(stdout.String(), text) {
			t.Errorf("the analysis does not have %q:\n%s", text, stdout)
		}
		var rows []string
		for _, p := range r.Processes {
			rows = append(rows, p.Role+" "+p.Name)
			if p.Role == "worker" {
				held := p.Name == "worker-0"
				if p.Holder == nil || *p.Holder != held || p.MetricFirstResponse == nil ||
					(*p.MetricFirstResponse > 250) != held || p.MetricResponses == nil || *p.MetricResponses < 1 {
					t.Errorf("%s: %s is a holder: %v; its own metric: %v ms over %v responses", arm, p.Name, p.Holder,
						p.MetricFirstResponse, p.MetricResponses)
				}
			}
			// each has one core
			if procs := p.Role != "etcd" && p.Role != "nats"; procs != (p.GOMAXPROCS != nil) || procs &&
				*p.GOMAXPROCS != 1 {
				t.Errorf("%s: %s has GOMAXPROCS %v", arm, p.Name, p.GOMAXPROCS)
			}
			if p.CPUSeconds == nil || p.RSSPeak == nil || *p.RSSPeak < 1<<20 {
				t.Errorf("%s: %s %s has CPU %v, memory %v", arm, p.Role, p.Name, p.CPUSeconds, p.RSSPeak)
			}
		}
		slices.Sort(rows)
		if want := []string{"etcd etcd", "frontend frontend", "loadgen loadgen", "nats nats", "worker worker-0",
			"worker worker-1"}; !slices.Equal(rows, want) {
			t.Errorf("%s: processes %v", arm, rows)
		}
		if !strings.Contains(stdout.String(), arm+"-1") {
			t.Errorf("%s is not in the table:\n%s", arm, stdout)
		}
	}

	// A starved machine can leave a run of seconds without a steady window; then the analysis says that it sets both
	// aside.
	if plots, err := filepath.Glob(filepath.Join(dir, analysisDir, "*.svg")); err != nil || len(plots) == 0 &&
		!strings.Contains(stdout.String(), "all 2 runs were set aside") {
		t.Errorf("the analysis wrote no plots: %v %v\n%s", plots, err, stdout)
	}

	// A second call adds a run. Only one arm, so that the numbers show that they are shared.
	if code, _, stderr := runApp(small(dir, "--response-plane=tcp", "--request-count=16")...); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	if err := report.CheckCluster(filepath.Join(dir, "tcp-2")); err != nil {
		t.Error(err)
	}
}

// twoCores are two cores that this process may use, the same one twice when there is but one.
func twoCores() (a, b int) {
	var found []int
	status, _ := os.ReadFile("/proc/self/status") // where it cannot be read, the run says what is wrong
	_, rest, _ := strings.Cut(string(status), "\nCpus_allowed_list:")
	for f := range strings.SplitSeq(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), ",") {
		from, to, isRange := strings.Cut(f, "-")
		if n, err := strconv.Atoi(from); err == nil {
			found = append(found, n)
		}
		if n, err := strconv.Atoi(to); isRange && err == nil {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return 0, 0
	}
	return found[0], found[len(found)-1]
}

func TestBadCommandLines(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--response-plane=tcp,mux-quic"},
			`"mux-quic" is not known: use tcp, tls, quic, mux-tcp, record-quic, interval-quic`},
		{[]string{"--workers=3", "--processes=8"}, "--workers 3 is less than --processes 8"},
		{[]string{"--netns", "--bind-addr=127.0.0.1:0"},
			"--netns with --bind-addr 127.0.0.1:0: each namespace has an address of its own, so leave the host out"},
		{[]string{"--netns", "--processes=1024", "--workers=1024"}, "--netns with --processes 1024: use at most 998"},
		{[]string{"--etcd-endpoints=http://"}, "--etcd-endpoints http://: is not an address of etcd"},
		{[]string{"--netns", "--etcd-endpoints=https://etcd:2379"},
			"--netns with --etcd-endpoints https://etcd:2379: only http:// can be reached"},
		{[]string{"--netns", "--nats-url=tls://nats:4222"},
			"--netns with --nats-url tls://nats:4222: only nats:// can be reached"},
		{[]string{"--pin=frontend"}, `--pin "frontend": "frontend" names no part: use auto, off, or a list`},
		{[]string{"--pin=workers:1023"}, "workers may not use core 1023: this process has "},
		{[]string{"--holders=5"}, "--holders 5 of --processes 8: use 0 to 4"},
		{[]string{"--holders=1", "--hold-delay=1s"}, "--hold-delay 1s makes no holder"},
		{[]string{"--allow=wrong tokens"}, "--allow"},
		{[]string{"--bin-dir=" + t.TempDir()}, "does not have the program mockworker"},
		{[]string{"--nats-url=nats://127.0.0.1:1"}, "--nats-url"},
	} {
		code, _, stderr := runApp(c.args...)
		if code != cli.ExitFailure || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: exit code %d, expected %q in\n%s", c.args, code, c.want, stderr)
		}
	}
}

func TestShowJudges(t *testing.T) {
	good := cluster.Outcome{Name: "tcp-1", Dir: "d", Run: &report.Run{ID: "a", Raw: &report.Window{Requests: 1}}}
	bad, part := good, good
	bad.Name, bad.Invalid = "quic-1", &report.InvalidError{Reason: "2 wrong tokens"}
	part.Incomplete = &report.MissingError{Field: "plane", Why: "x"}
	var out bytes.Buffer
	if err := show(&out, []cluster.Outcome{good}); err != nil {
		t.Error(err)
	}
	var exit *cli.ExitError
	err := show(&out, []cluster.Outcome{part, bad})
	if e, ok := err.(*cli.ExitError); !ok || e.Code != cli.ExitBadRun || !strings.Contains(err.Error(),
		"quic-1: 2 wrong tokens") || !strings.Contains(err.Error(), "tcp-1: the run directory") {
		t.Errorf("%T %v %v", err, err, exit)
	}
	if err := show(&out, []cluster.Outcome{part}); err == nil || !strings.Contains(err.Error(), "not complete") {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(out.String(), "tcp-1") || !strings.Contains(out.String(), "quic-1") {
		t.Errorf("the table lacks a run:\n%s", &out)
	}
}

func TestSettingsReachTheRuns(t *testing.T) {
	parse := func(args ...string) cluster.Config {
		t.Helper()
		app := newApp(&lockedBuffer{}, &lockedBuffer{})
		f := declare(app)
		if err := app.Parse(args); err != nil {
			t.Fatal(err)
		}
		return f.config()
	}
	c := parse()
	if !slices.Equal(c.Arms, []string{"tcp", "quic"}) || c.Workers != 512 || c.Processes != 8 ||
		c.Concurrency != 8192 || c.Requests != 12288 || c.Warmup != 8192 ||
		c.ISL != 1024 || c.OSL != 256 || c.TTFT != 20*time.Millisecond || c.ITL != 200*time.Millisecond ||
		c.Dir != "runs/" || len(c.PlaneArgs) != 0 || c.BindAddr != loopback {
		t.Errorf("defaults %+v", c)
	}
	if c.Netns || parse("--netns").BindAddr != ":0" || !parse("--netns").Netns ||
		parse("--netns", "--bind-addr=[::]:0").BindAddr != "[::]:0" {
		t.Errorf("--netns gives %+v", parse("--netns"))
	}
	c = parse("--bind-addr=:7000", "--quic-lanes=3", "--udp-recv-buffer=1MiB", "--warmup-request-count=0")
	if !slices.Equal(c.PlaneArgs, []string{"--quic-lanes=3", "--udp-recv-buffer=1MiB"}) || c.BindAddr != ":7000" ||
		c.Warmup != 0 || c.Lanes("quic") != 3 || c.Lanes("tcp") != 1 {
		t.Errorf("config %+v", c)
	}
	if c = parse("--holders=2", "--hold-delay=3s", "--pin=off", "--allow=partial"); c.Holders != 2 ||
		c.HoldDelay != 3*time.Second || c.Pin != "off" || c.Settings["allow"] != nil {
		t.Errorf("config %+v", c)
	}
	if c = parse(); c.Pin != cluster.PinAuto || c.Holders != 0 {
		t.Errorf("config %+v", c)
	}
	if c = parse("--udp-recv-buffer=1MiB"); c.Settings["udp_recv_buffer"] != int64(1<<20) ||
		c.Settings["artifact_dir"] != nil {
		t.Errorf("settings %v", c.Settings)
	}
}

// children are the child processes of this one, as far as the system tells.
func children(t *testing.T) []string {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if err != nil {
			continue // the thread has ended
		}
		out = append(out, strings.Fields(string(b))...)
	}
	return out
}
