package report

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/laneway-ai/laneway/internal/program/chart"
)

//go:embed page.tmpl
var pageText string

//go:embed page.css
var pageCSS string

var pageTemplate = template.Must(template.New("report").Parse(pageText))

// WriteHTML writes report.html into a run directory, from run.json, requests.jsonl and timeseries.csv there. The page
// needs nothing else: no script, no font, no picture from elsewhere. Rows that cannot be read are counted on the page.
func WriteHTML(dir string) error {
	run, err := Read(dir)
	if err != nil {
		return err
	}
	c := newCurves(run)
	c.bad, err = ScanDir(dir, c.add)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	c.missing = err != nil
	series, err := ReadSeries(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var b bytes.Buffer
	if err := renderHTML(&b, run, c, series); err != nil {
		return fmt.Errorf("%s: %w", HTMLFile, err)
	}
	return writeFile(filepath.Join(dir, HTMLFile), b.Bytes())
}

// curves are the latencies behind the percentile curves, in milliseconds.
type curves struct {
	raw, steady latencies
	steadySpan  Span
	haveSteady  bool
	bad         Bad
	missing     bool // there is no requests.jsonl
}

type latencies struct{ ttft, itl []float64 }

func newCurves(run *Run) *curves {
	c := &curves{}
	if w := run.Steady; w != nil {
		c.steadySpan, c.haveSteady = w.Span(), true
	}
	return c
}

// Span is the window's stretch of the run's clock.
func (w *Window) Span() Span {
	ns := func(s float64) int64 { return int64(s*1e9 + .5) }
	return Span{ns(w.StartS), ns(w.EndS)}
}

// Holds tells whether the window counts the row: a measured request that started within it.
func (w *Window) Holds(r *Row) bool { return r.Phase == PhaseMeasured && w.Span().holds(started(r)) }

func (c *curves) add(r *Row) {
	if r.Phase != PhaseMeasured || !r.OK() {
		return
	}
	c.raw.add(r)
	if c.haveSteady && c.steadySpan.holds(started(r)) {
		c.steady.add(r)
	}
}

func (l *latencies) add(r *Row) {
	if v, ok := r.TTFT(); ok {
		l.ttft = append(l.ttft, float64(v)*msPerNs)
	}
	if v, ok := r.ITL(); ok {
		l.itl = append(l.itl, v*msPerNs)
	}
}

// Curve is the percentile curve of values: X is the share that does not exceed Y. It sorts the values in place. It has
// as many points as a picture needs, each exact.
func Curve(values []float64) []chart.Point {
	n := len(values)
	if n == 0 {
		return nil
	}
	slices.Sort(values)
	var out []chart.Point
	for at := 0.0; ; {
		out = append(out, chart.Point{X: at, Y: Quantile(values, at)})
		next := 1 - (1-at)*.96 // 4% of what is left: the same room on an axis of nines
		if at < .5 {
			next = at + .02
		}
		if 1-next < 1/float64(n) { // one value is left
			return out
		}
		at = next
	}
}

func renderHTML(w io.Writer, run *Run, c *curves, series []Second) error {
	return pageTemplate.Execute(w, newPage(run, c, series))
}
