package promlab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// Engine asks a Store.
type Engine struct {
	engine *promql.Engine
	store  *Store
}

// NewParser is the parser of PromQL as a server has it by default.
func NewParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// NewEngine makes one. Close it.
func NewEngine(s *Store) *Engine {
	return &Engine{store: s, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, Parser: NewParser(),
	})}
}

// Close ends the engine.
func (e *Engine) Close() error { return e.engine.Close() }

// Query evaluates an expression at t, milliseconds.
func (e *Engine) Query(ctx context.Context, expr string, t int64) (promql.Vector, error) {
	q, err := e.engine.NewInstantQuery(ctx, e.store, nil, expr, time.UnixMilli(t))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	defer q.Close()
	r := q.Exec(ctx)
	if r.Err != nil {
		return nil, fmt.Errorf("%s: %w", expr, r.Err)
	}
	switch v := r.Value.(type) {
	case promql.Vector:
		return append(promql.Vector(nil), v...), nil // Close takes the result back
	case promql.Scalar:
		return promql.Vector{{T: v.T, F: v.V}}, nil
	}
	return nil, fmt.Errorf("%s: has the type %s", expr, r.Value.Type())
}

// Alert is an alert that fires.
type Alert struct {
	Name   string
	Labels labels.Labels // of the series that is over its limit
	Value  float64
}

// Rules evaluates groups of rules as a server does: recordings first in their order, alerts after they have been true
// for their time.
type Rules struct {
	engine *Engine
	groups *rulefmt.RuleGroups
	since  map[string]int64 // alert and series -> when it became true
}

// LoadRules reads a rule file; names, expressions and templates are checked as `promtool check rules` does.
func LoadRules(e *Engine, file string) (*Rules, error) {
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, NewParser(), slog.New(slog.DiscardHandler))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Rules{engine: e, groups: groups, since: make(map[string]int64)}, nil
}

// All are the rules in order.
func (r *Rules) All() []rulefmt.Rule {
	var out []rulefmt.Rule
	for _, g := range r.groups.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// Eval evaluates all rules at t, milliseconds, which grows from call to call, and returns what fires.
func (r *Rules) Eval(ctx context.Context, t int64) ([]Alert, error) {
	var firing []Alert
	for _, rule := range r.All() {
		v, err := r.engine.Query(ctx, rule.Expr, t)
		if err != nil {
			return nil, err
		}
		if rule.Record != "" {
			for _, s := range v {
				r.engine.store.Append(labels.NewBuilder(s.Metric).Set(labels.MetricName, rule.Record).Labels(), t, s.F)
			}
			continue
		}
		still := make(map[string]bool)
		for _, s := range v {
			k := rule.Alert + s.Metric.String()
			still[k] = true
			if _, ok := r.since[k]; !ok {
				r.since[k] = t
			}
			if t-r.since[k] >= time.Duration(rule.For).Milliseconds() {
				firing = append(firing, Alert{Name: rule.Alert, Labels: s.Metric, Value: s.F})
			}
		}
		for k := range r.since {
			if len(k) > len(rule.Alert) && k[:len(rule.Alert)+1] == rule.Alert+"{" && !still[k] {
				delete(r.since, k)
			}
		}
	}
	return firing, nil
}

// Numbers says whether a result has a number in it: rates of nothing by nothing are none.
func Numbers(v promql.Vector) bool {
	for _, s := range v {
		if !math.IsNaN(s.F) {
			return true
		}
	}
	return false
}
