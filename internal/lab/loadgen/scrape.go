package loadgen

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// Roles of the processes that are scraped.
const (
	roleFrontend = "frontend"
	roleWorker   = "worker"
	roleOther    = "other"
)

// series names one counter of a scrape: its metric and the values of the labels that matter.
type series struct{ name, a, b string }

// wanted lists the metrics that a run needs, with the labels that matter; the values of other labels are added up.
var wanted = map[string][2]string{
	"process_cpu_seconds_total":            {},
	"process_resident_memory_bytes":        {},
	"laneway_records_total":                {"direction"},
	"laneway_plane_records_total":          {"plane", "direction"},
	"laneway_lane_writes_total":            {},
	"laneway_lane_reads_total":             {},
	"laneway_consumer_wakes_total":         {},
	"laneway_streams_ended_total":          {"end"},
	"laneway_lane_takeovers_total":         {},
	"laneway_lane_resent_bytes_total":      {},
	"laneway_udp_socket_drops_total":       {"port"},
	"laneway_udp_datagrams_total":          {"direction"},
	"laneway_quic_library_drops_total":     {},
	"laneway_quic_packets_lost_total":      {},
	"laneway_host_udp_rcvbuf_errors_total": {},
	"go_sched_gomaxprocs_threads":          {},
	firstResponseMetric:                    {},
}

// firstResponseMetric is a worker's histogram of times to first response. Of a histogram a scrape keeps the sum and the
// count, as the series NAME_sum and NAME_count.
const firstResponseMetric = "laneway_worker_time_to_first_response_seconds"

// scrape is what one process said at one time.
type scrape struct {
	at         time.Time
	role, name string
	values     map[series]float64
}

// sum adds up the series of a metric, false when there is none. ok picks by labels; nil takes all.
func (s *scrape) sum(name string, ok func(a, b string) bool) (float64, bool) {
	if s == nil {
		return 0, false
	}
	total, found := 0.0, false
	for k, v := range s.values {
		if k.name == name && (ok == nil || ok(k.a, k.b)) {
			total, found = total+v, true
		}
	}
	return total, found
}

// scraper reads the metrics of one process.
type scraper struct {
	url    redact.URL
	client *http.Client
}

// maxMetrics bounds the text of one scrape.
const maxMetrics = 32 << 20

func (s *scraper) get(ctx context.Context, url, accept string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, redact.Error(err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", redact.Address(url), resp.Status)
	}
	return resp.Body, nil
}

func (s *scraper) scrape(ctx context.Context) (*scrape, error) {
	before := time.Now()
	body, err := s.get(ctx, s.url.Whole(), "text/plain; version=0.0.4")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(body, maxMetrics))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.url, err)
	}
	// The process read its clock somewhere between the two times.
	out := extract(families)
	out.at = before.Add(time.Since(before) / 2)
	if out.name == "" {
		if u, err := url.Parse(s.url.Whole()); err == nil {
			out.name = u.Host
		}
	}
	return out, nil
}

// extract keeps what a run needs, and finds the process's role.
func extract(families map[string]*dto.MetricFamily) *scrape {
	out := &scrape{values: map[series]float64{}, role: roleOther}
	for name, f := range families {
		labels, ok := wanted[name]
		if !ok {
			continue
		}
		for _, m := range f.GetMetric() {
			at := func(suffix string) series { return series{name + suffix, label(m, labels[0]), label(m, labels[1])} }
			if h := m.Histogram; h != nil {
				out.values[at("_sum")] += h.GetSampleSum()
				out.values[at("_count")] += float64(h.GetSampleCount())
			} else if v, ok := valueOf(m); ok {
				out.values[at("")] += v
			}
		}
	}
	switch {
	case families["laneway_frontend_requests_total"] != nil || families["laneway_frontend_inflight_requests"] != nil:
		out.role = roleFrontend
	case families["laneway_worker_running_requests"] != nil:
		out.role = roleWorker
	}
	if f := families["laneway_process_info"]; f != nil && len(f.GetMetric()) > 0 {
		m := f.GetMetric()[0]
		if r := label(m, "role"); r != "" {
			out.role = r
		}
		out.name = label(m, "name")
	}
	return out
}

func valueOf(m *dto.Metric) (float64, bool) {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue(), true
	case m.Gauge != nil:
		return m.Gauge.GetValue(), true
	case m.Untyped != nil:
		return m.Untyped.GetValue(), true
	}
	return 0, false
}

func label(m *dto.Metric, name string) string {
	if name == "" {
		return ""
	}
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// planeDebug is what of /debug/plane goes into the report: the sockets, in the report's own shape, and the lanes as the
// plane counts them.
type planeDebug struct {
	Sockets []report.Socket `json:"sockets"`
	Stats   struct {
		Lanes []struct {
			PeerName string
			Local    string // address of our socket
			Remote   string
			Lane     int
			Streams  int64
			BytesIn  int64
		}
	} `json:"stats"`
}

// debug reads /debug/plane beside the metrics. A server that has none, or has it as a page only, gives nil.
func (s *scraper) debug(ctx context.Context) *planeDebug {
	at, err := url.Parse(s.url.Whole())
	if err != nil || !strings.HasSuffix(at.Path, "/metrics") {
		return nil
	}
	// with the query, which may hold a key
	at.Path, at.RawPath = strings.TrimSuffix(at.Path, "/metrics")+"/debug/plane", ""
	body, err := s.get(ctx, at.String(), "application/json")
	if err != nil {
		return nil
	}
	defer body.Close()
	var d planeDebug
	if json.NewDecoder(io.LimitReader(body, maxMetrics)).Decode(&d) != nil {
		return nil
	}
	return &d
}
