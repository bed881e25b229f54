package analysis

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/chart"
)

// WritePlots writes the pictures of the table's runs into dir as SVG and returns their paths: the distribution of TTFT
// for each number of holders (each run its own line), ITL against load, and requests/s by holders.
func (t *Table) WritePlots(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("plots: %w", err)
	}
	colors := map[string]int{}
	var configs []string
	for _, l := range t.Lines {
		if _, ok := colors[l.Config]; !ok {
			colors[l.Config] = len(colors)
			configs = append(configs, l.Config)
		}
	}
	files := map[string]chart.Plot{}
	for _, l := range t.Lines {
		name := fmt.Sprintf("ttft-%s.svg", strings.ReplaceAll(strings.TrimPrefix(holdersText(l.Holders), "an "), " ",
			"-"))
		p, ok := files[name]
		if !ok {
			p = chart.Plot{Title: "TTFT, " + holdersText(l.Holders), XLabel: "ms",
				YLabel: "share of requests at or below", X: chart.Log}
		}
		for i, r := range l.Runs {
			s := chart.Series{Tip: r.Name, Color: colors[l.Config], Style: chart.Steps, Points: ecdf(r.ttft)}
			if i == 0 {
				s.Name = l.Config
			}
			p.Series = append(p.Series, s)
		}
		files[name] = p
	}
	files["itl-by-load.svg"] = t.dots(configs, "ITL p99 against load", "output tokens/s", "ms",
		func(r *Run) (chart.Point, bool) {
			y, ok := metricITL99.Of(r)
			x, ok2 := ofWindow(tokenRate)(r)
			return chart.Point{X: x, Y: y}, ok && ok2
		})
	// Dots of one number of holders stand beside one another, so that equal configurations do not hide each other.
	byHolders := t.dots(configs, "Requests/s by holders", "holders", "requests/s", func(r *Run) (chart.Point, bool) {
		y, ok := metricRate.Of(r)
		i := slices.Index(configs, r.Config.Name)
		x := float64(r.Holders) + .4*(float64(i)-float64(len(configs)-1)/2)/float64(len(configs))
		return chart.Point{X: x, Y: y}, ok && r.Holders >= 0
	})
	byHolders.Whole = true
	files["requests-by-holders.svg"] = byHolders
	var out []string
	for name, p := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(p.File()), 0o644); err != nil {
			return nil, fmt.Errorf("plots: %w", err)
		}
		out = append(out, path)
	}
	slices.Sort(out)
	return out, nil
}

// dots draws a dot for each run, coloured by configuration.
func (t *Table) dots(configs []string, title, x, y string, of func(*Run) (chart.Point, bool)) chart.Plot {
	p := chart.Plot{Title: title, XLabel: x, YLabel: y}
	for i, c := range configs {
		named := false
		for _, l := range t.Lines {
			if l.Config != c {
				continue
			}
			for _, r := range l.Runs {
				at, ok := of(r)
				if !ok {
					continue
				}
				s := chart.Series{Tip: r.Name + " (" + holdersText(r.Holders) + ")", Color: i, Style: chart.Dots,
					Points: []chart.Point{at}}
				if !named {
					s.Name, named = c, true
				}
				p.Series = append(p.Series, s)
			}
		}
	}
	return p
}

// ecdf turns a percentile curve around.
func ecdf(curve []chart.Point) []chart.Point {
	out := make([]chart.Point, len(curve))
	for i, p := range curve {
		out[i] = chart.Point{X: p.Y, Y: p.X}
	}
	return out
}
