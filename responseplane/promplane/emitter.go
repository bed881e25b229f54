package promplane

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/responseplane"
)

// emitter makes metrics of numbers. The number of label values always is the one of the description, so nothing here
// can fail.
type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) counter(d *prometheus.Desc, v uint64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (e emitter) gauge(d *prometheus.Desc, v int64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
}

// counters is a counter for each value of one label.
func (e emitter) counters(d *prometheus.Desc, m map[string]uint64) {
	for label, v := range m {
		e.counter(d, v, label)
	}
}

// perWrite makes a histogram of the plane's buckets of records per write: bucket i holds the writes of up to 2^i
// records that the one before does not, the last bucket all larger ones.
func (e emitter) perWrite(d *prometheus.Desc, s responseplane.Stats) {
	last := len(s.RecordsPerWrite) - 1
	buckets := make(map[float64]uint64, last)
	var n uint64
	for i, v := range s.RecordsPerWrite {
		n += v
		if i < last {
			buckets[float64(uint64(1)<<i)] = n
		}
	}
	e.ch <- prometheus.MustNewConstHistogram(d, n, float64(s.RecordsOut), buckets)
}

func (e emitter) seconds(d *prometheus.Desc, v float64) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
}

// takeoverTime makes a histogram of how long lanes were without a connection, whatever the reason.
func (e emitter) takeoverTime(d *prometheus.Desc, by map[string]responseplane.Takeovers) {
	buckets := make(map[float64]uint64)
	var n uint64
	var sum float64
	for _, t := range by {
		n, sum = n+t.Count, sum+t.Time.Seconds()
		var below uint64
		for i, bound := range responseplane.TakeoverBuckets() {
			below += t.Buckets[i]
			buckets[bound.Seconds()] += below
		}
	}
	e.ch <- prometheus.MustNewConstHistogram(d, n, sum, buckets)
}
