package frontend

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/internal/program/tracing"
)

var (
	ttftBuckets = []float64{.001, .002, .005, .01, .02, .03, .04, .05, .075, .1, .15, .2, .25, .3, .4, .5, .75, 1, 1.5,
		2.5, 5, 7.5, 10, 20, 40, 80, 160}
	// Inter-token latencies of small models are 1 to 2 ms; buckets that begin at 10 ms would show nothing.
	itlBuckets = []float64{.0005, .00075, .001, .00125, .0015, .002, .0025, .003, .004, .005, .0075, .01, .015,
		.02, .03, .04, .05, .075, .1, .15, .2, .22, .25, .3, .4, .5, .75, 1, 2.5, 5}
	durationBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 40, 50, 60, 75,
		90, 120, 180, 300, 600}
)

// metrics are the frontend's own. Children are looked up once a request, never once a token.
type metrics struct {
	started      *prometheus.CounterVec
	requests     *prometheus.CounterVec
	inflight     *prometheus.GaugeVec
	disconnected prometheus.Counter
	ttft         *prometheus.HistogramVec
	itl          *prometheus.HistogramVec
	duration     *prometheus.HistogramVec
	tokens       *prometheus.CounterVec
	slow         prometheus.Counter
	inline, ring prometheus.Counter // of writes
	pulled       prometheus.Counter

	models sync.Map // model -> *modelMetrics; only models that a worker serves get in
}

type modelMetrics struct {
	inflight            prometheus.Gauge
	ttft, itl, duration prometheus.Observer
	tokens              prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, clients *conns) (*metrics, error) {
	const ns, sub = "laneway", "frontend"
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: "open_connections",
		Help: "Connections of clients, idle ones too."}, func() float64 { return float64(clients.open.Load()) })
	over := prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: ns, Subsystem: sub,
		Name: "refused_connections_total",
		Help: "Connections that came when clients held as many as they may."},
		func() float64 { return float64(clients.over.Load()) })
	hist := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Subsystem: sub, Name: name,
			Help: help, Buckets: buckets}, []string{"model"})
	}
	m := &metrics{
		started: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub,
			Name: "requests_started_total",
			Help: "Requests for tokens whose header came. Less those that ended (requests_total) they are " +
				"being served.",
		}, []string{"endpoint"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: "requests_total",
			Help: "Requests that ended. status is the HTTP status, or the one a failure in mid-stream would have " +
				"had; 499: the client left."},
			[]string{"model", "endpoint", "request_type", "status", "error_type"}),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: "inflight_requests",
			Help: "Requests that are being served."}, []string{"model"}),
		disconnected: prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: sub,
			Name: "disconnected_clients_total",
			Help: "Clients that left, or took no more bytes, before their response had ended."}),
		ttft: hist("time_to_first_token_seconds",
			"From a request's header to its first record, of requests that got one.", ttftBuckets),
		itl: hist("inter_token_latency_seconds",
			"Mean time between the records of a response, one value a response of at least 2 records.", itlBuckets),
		duration: hist("request_duration_seconds", "Request to end, however it ended.", durationBuckets),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub,
			Name: "output_tokens_total",
			Help: "Tokens that workers sent."}, []string{"model"}),
	}
	m.slow = prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: "slow_clients_total",
		Help: "Clients that were cut because they took no bytes for the write timeout. They count as disconnected " +
			"too."})
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: "event_writes_total",
		Help: "Writes of events to clients: inline or io_uring by the goroutine that brought them, one by one or " +
			"those of a read together, or pull by the request's own."}, []string{"path"})
	m.inline, m.ring, m.pulled = writes.WithLabelValues("inline"), writes.WithLabelValues("io_uring"),
		writes.WithLabelValues("pull")
	var errs []error
	for _, c := range []prometheus.Collector{open, over, m.started, m.requests, m.inflight, m.disconnected, m.ttft,
		m.itl, m.duration, m.tokens, m.slow, writes} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) model(name string) *modelMetrics {
	if v, ok := m.models.Load(name); ok {
		return v.(*modelMetrics)
	}
	v, _ := m.models.LoadOrStore(name, &modelMetrics{
		inflight: m.inflight.WithLabelValues(name),
		ttft:     m.ttft.WithLabelValues(name),
		itl:      m.itl.WithLabelValues(name),
		duration: m.duration.WithLabelValues(name),
		tokens:   m.tokens.WithLabelValues(name),
	})
	return v.(*modelMetrics)
}

// account is what one request will have been when it has ended. It belongs to the request's goroutine.
type account struct {
	id          names
	start       time.Time
	first, last time.Time // when records were taken
	records     int
	model       *modelMetrics // nil until the model is known
	modelName   string
	endpoint    string
	stream      bool
	status      int
	label       string
	trace       *tracing.Request
}

// gone notes that the client has left, or takes no more bytes, before its answer had ended.
func (a *account) gone() { a.status, a.label = statusGone, labelCancelled }

// givenUp says that there is no answer, or not all of it, and that nobody is told so: the client has left, or a panic
// is on its way up.
func (a *account) givenUp() bool { return a.status == statusGone || a.status == 0 }

// attrs are what a line of the log says of the request.
func (a *account) attrs(more ...any) []any {
	out := []any{"request_id", a.id.own, "model", a.modelName, "records", a.records}
	if a.id.client != "" {
		out = append(out, "client_request_id", a.id.client)
	}
	if trace := a.trace.ID(); trace != "" {
		out = append(out, "trace_id", trace)
	}
	return append(out, more...)
}

// took notes n records.
func (a *account) took(n int, now time.Time) {
	if n == 0 {
		return
	}
	if a.records == 0 {
		a.first = now
		a.model.ttft.Observe(now.Sub(a.start).Seconds())
	}
	a.records += n
	a.last = now
	a.model.tokens.Add(float64(n))
}

// begin counts a request that has come; close counts it when it has ended.
func (m *metrics) begin(a *account) { m.started.WithLabelValues(a.endpoint).Inc() }

func (m *metrics) close(a *account) {
	if a.status == 0 { // a panic; net/http cuts the connection
		a.status, a.label = http.StatusInternalServerError, labelInternal
	}
	kind := "unary"
	if a.stream {
		kind = "stream"
	}
	m.requests.WithLabelValues(a.modelName, a.endpoint, kind, strconv.Itoa(a.status), a.label).Inc()
	if a.status == statusGone {
		m.disconnected.Inc()
	}
	if a.model == nil {
		return
	}
	a.model.inflight.Dec()
	a.model.duration.Observe(time.Since(a.start).Seconds())
	if a.records > 1 {
		a.model.itl.Observe(a.last.Sub(a.first).Seconds() / float64(a.records-1))
	}
}
