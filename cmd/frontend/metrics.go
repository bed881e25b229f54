package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// newRegistry has what every process exports: who it is, the Go runtime's and the kernel's view of it, and the host's
// UDP drops.
func newRegistry(name string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "laneway_process_info", Help: "1; says which process this is.",
		ConstLabels: prometheus.Labels{"role": "frontend", "name": name},
	})
	info.Set(1)
	reg.MustRegister(info, udpDrops{}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

var rcvbufErrors = prometheus.NewDesc("laneway_host_udp_rcvbuf_errors_total",
	"Datagrams that the kernel dropped because a UDP socket's receive buffer was full, in this network namespace.", nil,
	nil)

// udpDrops reads the kernel's counter when it is scraped. Where it cannot be read there is no such metric, rather than
// a zero.
type udpDrops struct{}

func (udpDrops) Describe(ch chan<- *prometheus.Desc) { ch <- rcvbufErrors }

func (udpDrops) Collect(ch chan<- prometheus.Metric) {
	if c, ok := procstat.ReadUDP(procstat.Self); ok {
		ch <- prometheus.MustNewConstMetric(rcvbufErrors, prometheus.CounterValue, float64(c.RcvbufErrors))
	}
}

var retriesTotal = prometheus.NewDesc("laneway_frontend_retries_total",
	"Attempts that failed before the first record and were made again at another worker, by reason, whether the "+
		"request then got a record or not.", []string{"reason"}, nil)

// retries exports what the plane counts.
type retries struct{ counts func() map[string]uint64 }

func (retries) Describe(ch chan<- *prometheus.Desc) { ch <- retriesTotal }

func (r retries) Collect(ch chan<- prometheus.Metric) {
	for reason, n := range r.counts() {
		ch <- prometheus.MustNewConstMetric(retriesTotal, prometheus.CounterValue, float64(n), reason)
	}
}
