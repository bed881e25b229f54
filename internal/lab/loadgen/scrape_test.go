package loadgen

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// cluster is a scripted server with the metrics of one frontend and two workers, which follow what the server does.
type cluster struct {
	*server
	frontend, workers *httptest.Server
	tokens, done      atomic.Int64
	factor            float64 // records counted for each token
	stray             int64   // records counted at another plane
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{factor: 1}
	inner := normal(time.Millisecond, time.Millisecond)
	c.server = newServer(t, func(s *server, call *call) {
		inner(s, call)
		c.tokens.Add(int64(call.osl))
		c.done.Add(1)
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		n, done := float64(c.tokens.Load()), float64(c.done.Load())
		stray := int64(0)
		if done > 0 {
			stray = c.stray
		}
		fmt.Fprintf(w, `# TYPE laneway_process_info gauge
laneway_process_info{role="frontend",name="fe-0"} 1
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total %f
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes %f
# TYPE laneway_records_total counter
laneway_records_total{direction="in"} %f
laneway_records_total{direction="out"} 7
# TYPE laneway_plane_records_total counter
laneway_plane_records_total{plane="quic",direction="in"} %f
laneway_plane_records_total{plane="quic",direction="out"} 5
laneway_plane_records_total{plane="tcp",direction="in"} %d
# TYPE laneway_lane_reads_total counter
laneway_lane_reads_total %f
# TYPE laneway_consumer_wakes_total counter
laneway_consumer_wakes_total 0
# TYPE laneway_lane_takeovers_total counter
laneway_lane_takeovers_total{reason="peer"} 0
# TYPE laneway_lane_resent_bytes_total counter
laneway_lane_resent_bytes_total 0
# TYPE laneway_streams_ended_total counter
laneway_streams_ended_total{end="complete"} %f
laneway_streams_ended_total{end="lost"} 0
# TYPE laneway_udp_datagrams_total counter
laneway_udp_datagrams_total{direction="in"} %f
laneway_udp_datagrams_total{direction="out"} 1
# TYPE laneway_udp_socket_drops_total counter
laneway_udp_socket_drops_total{port="5001"} 0
laneway_udp_socket_drops_total{port="5002"} %f
# TYPE laneway_quic_library_drops_total counter
laneway_quic_library_drops_total 0
# TYPE laneway_host_udp_rcvbuf_errors_total counter
laneway_host_udp_rcvbuf_errors_total 100
# TYPE go_sched_gomaxprocs_threads gauge
go_sched_gomaxprocs_threads 3
`, 1000+done*0.003, 1e6+done, 50+n*c.factor, 50+n*c.factor, stray, n/10, done, n/2, done)
	})
	mux.HandleFunc("/debug/plane", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"sockets":[{"role":"lane","port":5001,"recv_asked":8,"recv_granted":16,"gro":true}],
			"stats":{"Lanes":[{"Peer":[1,2],"PeerName":"p-w0","Plane":"quic","Lane":3,"Local":"192.0.2.1:5001","Streams":4,"BytesIn":900}]}}`)
	})
	c.frontend = httptest.NewServer(mux)
	t.Cleanup(c.frontend.Close)
	c.workers = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done := float64(c.done.Load())
		name := strings.Split(r.URL.Path, "/")[1]
		fmt.Fprintf(w,
			"# TYPE laneway_process_info gauge\nlaneway_process_info{role=\"worker\",name=\"p-%s\"} 1\n# TYPE "+
				"process_cpu_seconds_total counter\nprocess_cpu_seconds_total %f\n"+
				"# TYPE laneway_lane_writes_total counter\nlaneway_lane_writes_total{reason=\"flush\"} "+
				"%f\nlaneway_lane_writes_total{reason=\"control\"} 1\n"+
				"# TYPE laneway_quic_packets_lost_total counter\nlaneway_quic_packets_lost_total 0\n"+
				"# TYPE laneway_lane_resent_bytes_total counter\nlaneway_lane_resent_bytes_total 0\n"+
				// A hundred responses of 2 s each before the run, which are none of its; then 40 ms each.
				"# TYPE laneway_worker_time_to_first_response_seconds "+
				"histogram\nlaneway_worker_time_to_first_response_seconds_bucket{le=\"+Inf\"} %[4]f\n"+
				"laneway_worker_time_to_first_response_seconds_sum "+
				"%[5]f\nlaneway_worker_time_to_first_response_seconds_count %[4]f\n", name, done*0.002, done, 100+done,
			200+done*0.04)
	}))
	t.Cleanup(c.workers.Close)
	return c
}

func (c *cluster) config(plane string) Config {
	return Config{
		Concurrency: 4, Requests: 60, OSL: 10, ISL: 2, Warmup: DefaultWarmup,
		MetricsURLs: redact.URLs(c.frontend.URL+"/metrics", c.workers.URL+"/w0/metrics", c.workers.URL+"/w1/metrics"),
		Info: Info{
			Config: map[string]any{"response_plane": plane, "lanes": 1, "server_endpoints": 4, "workers": 2,
				"worker_processes": 2},
			Environment: &report.Environment{Revision: "abc", Pins: map[string]string{"fe-0": "0"}},
			Processes:   []report.Process{{Role: "etcd", Name: "etcd"}, {Role: "worker", Name: "p-w0"}},
		},
	}
}

func TestFiguresFromMetrics(t *testing.T) {
	c := newCluster(t)
	run, rows := load(t, c.server, c.config("quic")) // load runs report.Check, which knows what a quic run must have
	if len(run.Marks) > 0 && run.Marked(report.MarkNoProof) {
		t.Errorf("marks %v", run.Marks)
	}
	tokens := tokensSeen(rows)
	p := run.Plane
	if *p.Records != tokens || p.PlaneRecords["quic"] != tokens || p.PlaneRecords["tcp"] != 0 ||
		*p.Reads != tokens/10 || *p.Writes != 2*64 || *p.Wakes != 0 {
		t.Errorf("plane %+v for %d tokens", p, tokens)
	}
	if p.StreamsEnded["complete"] != 64 || p.StreamsEnded["lost"] != 0 || len(p.Lanes) != 1 ||
		p.Lanes[0].Process != "p-w0" || *p.Lanes[0].Streams != 4 {
		t.Errorf("ends %v, lanes %+v", p.StreamsEnded, p.Lanes)
	}
	u := run.UDP
	if *u.RcvbufErrors != 0 || *u.SocketDrops != 64 || *u.InDatagrams != tokens/2 || len(u.Sockets) != 2 ||
		*u.Sockets[0].Lane != 3 || u.Sockets[1].Lane != nil || *u.Sockets[1].Drops != 64 {
		t.Errorf("udp %+v", u)
	}
	// The scripted frontend uses 3 ms for each request, each of the two workers 2 ms.
	if f, w := *run.Raw.FrontendCPU, *run.Raw.WorkerCPU; f < 2.4 || f > 3.6 || w < 3.2 || w > 4.8 {
		t.Errorf("CPU per request: frontend %v, workers %v; want about 3 and 4", f, w)
	}
	byName := map[string]report.Process{}
	for _, p := range run.Processes {
		byName[p.Role+"/"+p.Name] = p
	}
	if len(run.Processes) != 5 {
		t.Errorf("processes %+v", run.Processes)
	}
	if p := byName["worker/p-w0"]; p.Requests == nil || *p.Requests == 0 || p.MeanFirstResponse == nil || *p.Holder ||
		p.CPUSeconds == nil || p.RSSPeak != nil || p.GOMAXPROCS != nil {
		t.Errorf("worker %+v", p)
		// each of the two says all, warm-up included
	} else if p.MetricResponses == nil || *p.MetricResponses != 64 || math.Abs(*p.MetricFirstResponse-40) > 1e-6 {
		t.Errorf("worker %s: its own metric says %v ms over %v responses", p.Name, p.MetricFirstResponse,
			p.MetricResponses)
	}
	if p := byName["loadgen/loadgen"]; p.GOMAXPROCS == nil || *p.GOMAXPROCS != runtime.GOMAXPROCS(0) ||
		p.MetricResponses != nil {
		t.Errorf("loadgen %+v", p)
	}
	if p := byName["frontend/fe-0"]; p.RSSPeak == nil || *p.RSSPeak != 1e6+64 || *p.CPUSeconds < 0.19 ||
		*p.CPUSeconds > 0.193 || p.Requests != nil ||
		p.GOMAXPROCS == nil || *p.GOMAXPROCS != 3 || p.MetricResponses != nil {
		t.Errorf("frontend %+v", p)
	}
	if _, ok := byName["etcd/etcd"]; !ok {
		t.Error("no etcd")
	}
	if run.Config["workers"] != 2 || run.Environment.Revision != "abc" || run.Environment.Go == "" ||
		len(run.Environment.Sockets) != 1 || run.Environment.Sockets[0].Process != "fe-0" {
		t.Errorf("config %v environment %+v", run.Config, run.Environment)
	}
}

func TestProofOfTransit(t *testing.T) {
	for _, c := range []struct {
		name, plane string
		factor      float64
		stray       int64
		metrics     bool
		proven      bool
	}{
		{"all over the arm's plane", "quic", 1, 0, true, true},
		{"records that are no tokens", "quic", 1.2, 0, true, true},
		{"some are missing", "quic", 0.9, 0, true, false},
		{"some over another plane", "quic", 1, 1, true, false},
		{"all over another plane", "tcp", 1, 0, true, false},
		{"nobody counts", "quic", 1, 0, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newCluster(t)
			s.factor, s.stray = c.factor, c.stray
			cfg := s.config(c.plane)
			if !c.metrics {
				cfg.MetricsURLs = cfg.MetricsURLs[1:]
			}
			cfg.URL = redact.New(s.URL)
			run, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got := !run.Marked(report.MarkNoProof); got != c.proven {
				t.Errorf("proven %v, want %v; %v", got, c.proven, run.Plane)
			}
			if err := run.Verdict(0); (err == nil) != c.proven {
				t.Errorf("verdict %v", err)
			}
		})
	}
}

// TestUnmeasuredIsAbsent: metrics that answer once and then no more give no figure, and say so.
func TestUnmeasuredIsAbsent(t *testing.T) {
	c := newCluster(t)
	var n atomic.Int64
	h := c.frontend.Config.Handler
	c.frontend.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > 1 {
			http.Error(w, "gone", http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, r)
	})
	cfg := c.config("")
	cfg.URL = redact.New(c.URL)
	delete(cfg.Info.Config, "response_plane")
	run, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if run.Raw.FrontendCPU != nil || run.Plane != nil || run.UDP != nil || run.Raw.LoadgenCPU == nil {
		t.Errorf("raw %+v plane %+v", run.Raw, run.Plane)
	}
	if run.Marked(report.MarkNoProof) {
		t.Error("a proof that nobody asked for is missing")
	}
}

func TestRolesWithoutInfo(t *testing.T) {
	for text, want := range map[string]string{
		"laneway_frontend_requests_total 1\n": roleFrontend, "laneway_worker_running_requests 1\n": roleWorker,
		"up 1\n": roleOther,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		got, err := (&scraper{url: redact.New(s.URL), client: s.Client()}).scrape(t.Context())
		if err != nil || got.role != want || got.name == "" {
			t.Errorf("%s: %+v %v", text, got, err)
		}
		s.Close()
	}
}

func TestInfo(t *testing.T) {
	i, err := ParseInfo([]byte(`{"config":{"response_plane":"tcp","lanes":2},"environment":{"mtu":1500},"processes":[{"role":"nats","name":"n"}]}`))
	if err != nil || i.plane() != "tcp" {
		t.Fatalf("%+v %v", i, err)
	}
	run := &report.Run{Config: map[string]any{"lanes": 9, "isl": 1}, Environment: report.Environment{Go: "go1"}}
	if err := i.mergeInto(run); err != nil || run.Config["lanes"] != 2.0 || run.Config["isl"] != 1 ||
		*run.Environment.MTU != 1500 || run.Environment.Go != "go1" || len(run.Processes) != 1 {
		t.Errorf("%+v %v", run, err)
	}
	for _, s := range []string{"", "[]", `{"confg":{}}`, `{"environment":{"mtuu":1}}`} {
		if _, err := ParseInfo([]byte(s)); err == nil {
			t.Errorf("%q was read", s)
		}
	}
}
