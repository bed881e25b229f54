package netns

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/lab/netns"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// firstPort is the first of the worker's four endpoints.
const firstPort = 7000

// rig is a worker process and a frontend in two namespaces, under load. etcd and NATS are in the host's network; the
// load generator is beside the frontend, so that only lanes and requests cross the path.
type rig struct {
	net              *netns.Network
	worker, frontend *process
	admin, http      string
	lanes            int
	discovery        []string // flags
	client           *http.Client
	load             *process
	runDir           string
}

type setup struct {
	planes string
	lanes  int
	ipv6   bool
}

func newRig(t *testing.T, s setup) *rig {
	t.Helper()
	need(t)
	p := programs(t)
	etcd, nats := devtest.Etcd(t), devtest.NATS(t)
	r := &rig{net: makeNetwork(t, netns.Config{Nodes: []string{"frontend", "worker"}, IPv6: true}), lanes: s.lanes}
	forward := func(target string) string {
		f, err := r.net.Hub().Forward(t.Context(), target, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f.Addr()
	}
	r.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return r.net.Hub().Dial(ctx, network, addr)
		},
	}}
	t.Cleanup(r.client.CloseIdleConnections)
	r.discovery = []string{"--etcd-endpoints=http://" + forward(strings.TrimPrefix(etcd.Endpoints()[0], "http://")),
		"--nats-url=nats://" + forward(strings.TrimPrefix(nats.URL(), "nats://"))}
	common := append([]string{"--response-plane=" + s.planes}, r.discovery...)
	front, work := r.net.Node("frontend"), r.net.Node("worker")
	for _, d := range []*netns.Node{front, work} {
		// A batch of UDP_SEGMENT or TSO crosses veth and bridge whole, whatever the MTU; one by one, packets are held
		// to it as on a wire.
		if err := d.IP(t.Context(), "link set "+d.Interface+" gso_max_segs 1"); err != nil {
			t.Fatal(err)
		}
	}
	bind := work.Addr4
	if s.ipv6 {
		bind = work.Addr6
	}
	// Tokens of 256 bytes, on each of two engines 16 responses, so that what a pass puts on each of two lanes does not
	// fit into a packet of 1,400 bytes.
	r.worker = start(t, work, "worker", p.Worker,
		append([]string{"--name=worker", "--num-workers=2", "--token-bytes=256", "--inter-token-latency=20ms",
			"--time-to-first-token=20ms", "--drain-grace=0s", "--drain-timeout=5s", "--admin-addr=" +
				net.JoinHostPort(work.Addr4.String(), "0"),
			"--bind-addr=" + net.JoinHostPort(bind.String(), strconv.Itoa(firstPort))}, common...)...)
	r.worker.address(t, "admin")
	at := net.JoinHostPort(front.Addr4.String(), "0")
	r.frontend = start(t, front, "frontend", p.Frontend,
		append([]string{"--name=frontend", "--http-addr=" + at, "--admin-addr=" + at,
			"--drain-timeout=5s", fmt.Sprintf("--lanes=%d", s.lanes)}, common...)...)
	r.http, r.admin = r.frontend.address(t, "http"), r.frontend.address(t, "admin")
	plane, _, _ := strings.Cut(s.planes, ",")
	await(t, patience, "all lanes", func() bool { return r.up(t, plane) == s.lanes })
	return r
}

// lastPort is the last one of the endpoints.
const lastPort = firstPort + 3

// metrics reads the frontend's.
func (r *rig) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := r.client.Get("http://" + r.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		i := strings.LastIndexByte(sc.Text(), ' ')
		if i < 0 || strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		v, err := strconv.ParseFloat(sc.Text()[i+1:], 64)
		if err != nil {
			t.Fatalf("metric %q: %v", sc.Text(), err)
		}
		out[sc.Text()[:i]] = v
	}
	return out
}

// sum adds up the series of a metric whose labels hold all of these texts.
func sum(m map[string]float64, name string, labels ...string) (total float64) {
next:
	for k, v := range m {
		n, rest, _ := strings.Cut(k, "{")
		if n != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		total += v
	}
	return total
}

func upOf(m map[string]float64, plane string) int {
	return int(sum(m, "laneway_lanes", `plane="`+plane+`"`, `state="up"`))
}

func (r *rig) up(t *testing.T, plane string) int { t.Helper(); return upOf(r.metrics(t), plane) }

// startLoad keeps 32 responses of two seconds each open, for so long, and returns when they flow.
func (r *rig) startLoad(t *testing.T, length time.Duration) {
	t.Helper()
	r.startLoadgen(t, "--osl=100", "--warmup-request-count=32", "--benchmark-duration="+length.String())
}

// startLong opens 32 responses of twelve seconds each, none after them, and returns when they flow.
func (r *rig) startLong(t *testing.T) {
	t.Helper()
	r.startLoadgen(t, "--osl=600", "--warmup-request-count=0", "--request-count=32")
}

func (r *rig) startLoadgen(t *testing.T, args ...string) {
	t.Helper()
	r.runDir = filepath.Join(t.TempDir(), "run")
	r.load = start(t, r.net.Node("frontend"), "loadgen", programs(t).Loadgen,
		append([]string{"--url=http://" + r.http, "--model=mock", "--concurrency=32", "--isl=16",
			"--request-timeout=60s", "--artifact-dir=" + r.runDir, "--ui=none", "--audit=on", "--metrics-url=http://" +
				r.admin + "/metrics"}, args...)...)
	await(t, patience, "32 responses that flow", func() bool {
		m := r.metrics(t)
		return sum(m, "laneway_open_streams") >= 32 && sum(m, "laneway_records_total", `direction="in"`) >= 32*40
	})
}

// finishSettled is finish, and fails when lanes died more often than most.
func (r *rig) finishSettled(t *testing.T, most int) *report.Run {
	t.Helper()
	r.load.wait(t, 2*time.Minute)
	r.settled(t, most)
	return r.finish(t)
}

// finish waits for the end of the load, of which every response must be whole, and stops everything.
func (r *rig) finish(t *testing.T) *report.Run {
	t.Helper()
	r.load.wait(t, 2*time.Minute)
	run, err := report.Read(r.runDir)
	if err != nil {
		t.Fatal(err)
	}
	if run.Raw.Errors != 0 || run.Raw.WrongTokens == nil || *run.Raw.WrongTokens != 0 || run.Raw.Requests < 32 ||
		int(run.Raw.Audited) != int(run.Raw.Requests) {
		t.Errorf("%d requests, %d verified, %d errors; ends %v", run.Raw.Requests, run.Raw.Audited, run.Raw.Errors,
			run.Plane.StreamsEnded)
	}
	ended := maps.Clone(run.Plane.StreamsEnded)
	delete(ended, "complete")
	for end, n := range ended {
		if n != 0 {
			t.Errorf("%v streams ended as %s", n, end)
		}
	}
	if n := sum(r.metrics(t), "laneway_open_streams"); n != 0 {
		t.Errorf("%v streams are open after the load", n)
	}
	r.frontend.stop(t)
	r.worker.stop(t)
	return run
}
