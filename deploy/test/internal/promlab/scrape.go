package promlab

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Scrape adds the text of a /metrics page to the store, as a server would with these labels for the target, and `up`.
// It returns the names of the series that are there, those that a histogram makes included.
func (s *Store) Scrape(text []byte, t int64, job, instance string) (map[string]bool, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("promlab: %s: %w", instance, err)
	}
	names := make(map[string]bool)
	add := func(name string, m *dto.Metric, v float64, more ...string) {
		names[name] = true
		b := labels.NewBuilder(labels.FromStrings(more...))
		for _, l := range m.GetLabel() {
			b.Set(l.GetName(), l.GetValue())
		}
		s.Append(b.Set(labels.MetricName, name).Set("job", job).Set("instance", instance).Labels(), t, v)
	}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				add(name, m, m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				add(name, m, m.GetGauge().GetValue())
			case dto.MetricType_UNTYPED:
				add(name, m, m.GetUntyped().GetValue())
			case dto.MetricType_SUMMARY:
				for _, q := range m.GetSummary().GetQuantile() {
					add(name, m, q.GetValue(), "quantile", number(q.GetQuantile()))
				}
				add(name+"_sum", m, m.GetSummary().GetSampleSum())
				add(name+"_count", m, float64(m.GetSummary().GetSampleCount()))
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				for _, b := range h.GetBucket() {
					if !math.IsInf(b.GetUpperBound(), 1) {
						add(name+"_bucket", m, float64(b.GetCumulativeCount()), "le", number(b.GetUpperBound()))
					}
				}
				add(name+"_bucket", m, float64(h.GetSampleCount()), "le", "+Inf")
				add(name+"_sum", m, h.GetSampleSum())
				add(name+"_count", m, float64(h.GetSampleCount()))
			}
		}
	}
	s.Append(labels.FromStrings(labels.MetricName, "up", "job", job, "instance", instance), t, 1)
	return names, nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
