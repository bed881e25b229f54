// Package promlab is the query engine of Prometheus over samples in memory: what rules and dashboards ask is answered
// by the code that will answer it in production.
package promlab

import (
	"context"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/prometheus/prometheus/model/histogram"
)

// Store holds the samples of series. It is used from one goroutine at a time.
type Store struct {
	series map[uint64]*series
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// NewStore makes an empty one.
func NewStore() *Store { return &Store{series: make(map[uint64]*series)} }

// Append adds a sample; t is in milliseconds and grows.
func (s *Store) Append(l labels.Labels, t int64, v float64) {
	k := l.Hash()
	x := s.series[k]
	if x == nil {
		x = &series{labels: l}
		s.series[k] = x
	}
	x.samples = append(x.samples, point{t, v})
}

// Querier implements storage.Queryable.
func (s *Store) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{s: s, mint: mint, maxt: maxt}, nil
}

type querier struct {
	s          *Store
	mint, maxt int64
}

func (q *querier) match(matchers []*labels.Matcher) []*series {
	var out []*series
	for _, x := range q.s.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(x.labels.Get(m.Name)) }) {
			out = append(out, x)
		}
	}
	sort.Slice(out, func(i, j int) bool { return labels.Compare(out[i].labels, out[j].labels) < 0 })
	return out
}

// Select implements storage.Querier.
func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	set := &set{at: -1}
	for _, x := range q.match(matchers) {
		var in []chunks.Sample
		for _, p := range x.samples {
			if p.T() >= q.mint && p.T() <= q.maxt {
				in = append(in, p)
			}
		}
		if len(in) > 0 {
			set.series = append(set.series, storage.NewListSeries(x.labels, in))
		}
	}
	return set
}

// LabelValues implements storage.Querier.
func (q *querier) LabelValues(_ context.Context, name string, _ *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	var out []string
	for _, x := range q.match(matchers) {
		if v := x.labels.Get(name); v != "" {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil, nil
}

// LabelNames implements storage.Querier.
func (q *querier) LabelNames(_ context.Context, _ *storage.LabelHints, matchers ...*labels.Matcher) ([]string,
	annotations.Annotations, error) {
	var out []string
	for _, x := range q.match(matchers) {
		x.labels.Range(func(l labels.Label) { out = append(out, l.Name) })
	}
	slices.Sort(out)
	return slices.Compact(out), nil, nil
}

// Close implements storage.Querier.
func (q *querier) Close() error { return nil }

type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// point is one float.
type point struct {
	t int64
	v float64
}

func (p point) T() int64                      { return p.t }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.v }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }
