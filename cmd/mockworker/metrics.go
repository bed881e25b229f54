package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/laneway-ai/laneway/internal/engine/mock"
)

// metrics are the worker's own. All engines of the process share them; label values are resolved once, here.
type metrics struct {
	registry *prometheus.Registry

	firstResponse prometheus.Histogram
	passLate      prometheus.Histogram
	skipped       prometheus.Counter
	cancelled     prometheus.Counter
	held          prometheus.Counter
	refused       map[mock.RefuseReason]prometheus.Counter // read only
	injected      map[mock.FailureType]prometheus.Counter  // read only
}

// Reasons for which the process refuses a request before an engine sees it.
const (
	refusedUnsupported mock.RefuseReason = "unsupported" // another version of the payload
	refusedBadRequest  mock.RefuseReason = "bad_request" // the payload makes no sense, or names another model
)

// newMetrics registers everything that needs no engines; addLoad adds what does.
func newMetrics(name string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		firstResponse: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "laneway_worker_time_to_first_response_seconds",
			Help:    "Time from a request's arrival at the worker to its first token, waiting included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18), // 1 ms to 131 s
		}),
		passLate: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "laneway_worker_pass_late_seconds",
			Help:    "How long after its scheduled time a pass of an engine began.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16), // 250 us to 8 s
		}),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "laneway_worker_passes_skipped_total",
			Help: "Passes that did not take place because the one before them was a whole interval late.",
		}),
		cancelled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "laneway_worker_cancelled_total",
			Help: "Requests that an engine dropped because their response was cancelled or lost.",
		}),
		held: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "laneway_worker_held_total",
			Help: "Requests that were held back on purpose (--hold-share).",
		}),
		injected: make(map[mock.FailureType]prometheus.Counter),
		refused:  make(map[mock.RefuseReason]prometheus.Counter),
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "laneway_worker_refused_total",
		Help: "Requests that were refused, by reason.",
	}, []string{"reason"})
	for _, r := range append(mock.RefuseReasons[:], refusedUnsupported, refusedBadRequest) {
		m.refused[r] = refused.WithLabelValues(string(r))
	}
	injected := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "laneway_worker_injected_failures_total",
		Help: "Failures on purpose that have shown, by type (--failure-types).",
	}, []string{"type"})
	for _, name := range mock.FailureTypeNames() {
		m.injected[mock.FailureType(name)] = injected.WithLabelValues(name)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "laneway_process_info",
		Help:        "1; says which process this is.",
		ConstLabels: prometheus.Labels{"role": "worker", "name": name},
	})
	info.Set(1)
	m.registry.MustRegister(m.firstResponse, m.passLate, m.skipped, m.cancelled, m.held, refused, injected, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// addLoad registers the gauges of the engines' load, summed over the process when they are read.
func (m *metrics) addLoad(engines []*mock.Engine) {
	sum := func(pick func(running, waiting int) int) func() float64 {
		return func() float64 {
			n := 0
			for _, e := range engines {
				n += pick(e.Load())
			}
			return float64(n)
		}
	}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "laneway_worker_running_requests",
			Help: "Requests that run now, prefill included, on all engines of the process.",
		}, sum(func(r, _ int) int { return r })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "laneway_worker_waiting_requests",
			Help: "Requests that wait for a running place, on all engines of the process. Those that are held back " +
				"count too.",
		}, sum(func(_, w int) int { return w })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "laneway_worker_held_requests",
			Help: "Requests that are held back on purpose now (--hold-share).",
		}, func() float64 {
			n := 0
			for _, e := range engines {
				n += e.Held()
			}
			return float64(n)
		}),
	)
}

func (m *metrics) FirstToken(after time.Duration) { m.firstResponse.Observe(after.Seconds()) }

func (m *metrics) Pass(late time.Duration, skipped int) {
	m.passLate.Observe(late.Seconds())
	if skipped > 0 {
		m.skipped.Add(float64(skipped))
	}
}

func (m *metrics) Cancelled() { m.cancelled.Inc() }

func (m *metrics) Held() { m.held.Inc() }

func (m *metrics) Injected(kind mock.FailureType) { m.injected[kind].Inc() }

func (m *metrics) Refused(r mock.RefuseReason) { m.refused[r].Inc() }
