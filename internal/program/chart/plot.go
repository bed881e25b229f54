package chart

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Point is one value. A NaN in it interrupts the line.
type Point struct{ X, Y float64 }

// Style is how a series is drawn.
type Style int

// The styles.
const (
	Lines Style = iota
	Steps       // level up to the next point's X, then straight up or down
	Dots
)

// Series is one set of points with a name for the legend. One without a name is not in the legend.
type Series struct {
	Name string
	// Tip is what the reader sees who points at the series; the name by default.
	Tip    string
	Points []Point
	Style  Style
	Dash   bool
	// Color picks one of 8 colours; further numbers begin again, dashed.
	Color int
}

// Band is a shaded stretch of the X axis.
type Band struct {
	From, To float64
	Name     string
}

// Plot is a picture of series over two axes.
type Plot struct {
	Title, XLabel, YLabel string
	X, Y                  Scale
	// Whole says that X counts something: its ticks are whole numbers, and points next to one belong to it.
	Whole  bool
	Series []Series
	Bands  []Band
}

// Sizes in the picture's own units; a page scales it to its width.
const (
	width      = 560
	plotHeight = 220
	leftRoom   = 58
	rightRoom  = 26  // half a tick's text
	charWidth  = 6.6 // of the legend, on average
)

type canvas struct {
	strings.Builder
}

func (c *canvas) f(format string, a ...any) { fmt.Fprintf(&c.Builder, format, a...) }

func (c *canvas) text(x, y float64, class, anchor, s string) {
	c.f(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(s))
}

// SVG is the picture as one element, for a page that has CSS.
func (p *Plot) SVG() string { return p.draw("") }

// File is the picture as a file of its own.
func (p *Plot) File() string {
	return p.draw("<style>" + CSS + "\nsvg.plot { background: var(--ground) }</style>")
}

func (p *Plot) draw(style string) string {
	var c canvas
	legend, rows := p.legend()
	top := 12.0
	if p.Title != "" {
		top += 20
	}
	plotTop := top + float64(rows)*18 + 22 // the Y label stands between
	bottom := plotTop + plotHeight
	c.f(`<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 %d %.0f" aria-label="%s">%s`,
		width, bottom+44, html.EscapeString(p.alt()), style)
	if p.Title != "" {
		c.text(4, 18, "title", "start", p.Title)
	}
	for _, l := range legend {
		x, y := 6+l.x, top+float64(l.row)*18+6
		k, dash := color(p.Series[l.i].Color)
		if p.Series[l.i].Style == Dots {
			c.f(`<circle cx="%.1f" cy="%.1f" r="4" class="f%d"/>`, x+9, y-4, k)
		} else {
			c.f(`<path class="line k%d%s" d="M%.1f %.1fh18"/>`, k, dashed(dash || p.Series[l.i].Dash), x, y-4)
		}
		c.text(x+23, y, "legend", "start", p.Series[l.i].Name)
	}
	c.text(4, plotTop-12, "", "start", p.YLabel)
	x, y, some := p.axes()
	if !some {
		c.text(width/2, (plotTop+bottom)/2, "", "middle", "nothing was measured")
		c.f(`</svg>`)
		return c.String()
	}
	px := func(v float64) float64 {
		return leftRoom + (x.scale.place(v)-x.lo)/(x.hi-x.lo)*(width-leftRoom-rightRoom)
	}
	py := func(v float64) float64 { return bottom - (y.scale.place(v)-y.lo)/(y.hi-y.lo)*plotHeight }
	var bandNames canvas // over the lines, with a rim that keeps them readable
	for _, b := range p.Bands {
		from, to := max(px(b.From), leftRoom), min(px(b.To), width-rightRoom)
		if to-from > 7*float64(len(b.Name)) {
			bandNames.text((from+to)/2, plotTop+14, "rim", "middle", b.Name)
		}
		if to > from {
			c.f(`<rect class="band" x="%.1f" y="%.1f" width="%.1f" height="%d"><title>%s</title></rect>`, from, plotTop,
				to-from, plotHeight, html.EscapeString(b.Name))
		}
	}
	for _, t := range y.ticks {
		c.f(`<path class="grid" d="M%d %.1fH%d"/>`, leftRoom, py(t.at), width-rightRoom)
		c.text(leftRoom-8, py(t.at)+4, "", "end", t.text)
	}
	for _, t := range x.ticks {
		c.f(`<path class="axis" d="M%.1f %.1fv5"/>`, px(t.at), bottom)
		c.text(px(t.at), bottom+18, "", "middle", t.text)
	}
	c.f(`<path class="axis" d="M%d %.1fH%d"/>`, leftRoom, bottom, width-rightRoom)
	c.text((leftRoom+width-rightRoom)/2, bottom+36, "", "middle", p.XLabel)
	for i := range p.Series {
		p.Series[i].draw(&c, px, py)
	}
	c.WriteString(bandNames.String())
	c.f(`</svg>`)
	return c.String()
}

func (s *Series) tip() string {
	if s.Tip != "" {
		return s.Tip
	}
	return s.Name
}

func (s *Series) draw(c *canvas, px, py func(float64) float64) {
	k, dash := color(s.Color)
	if s.Style == Dots {
		for _, p := range s.Points {
			if x, y := px(p.X), py(p.Y); finite(x) && finite(y) {
				c.f(`<circle class="f%d" cx="%.1f" cy="%.1f" r="4"><title>%s: %s, %s</title></circle>`, k, x, y,
					html.EscapeString(s.tip()), short(p.X), short(p.Y))
			}
		}
		return
	}
	c.f(`<path class="line k%d%s" d="`, k, dashed(dash || s.Dash))
	down, lastY := false, 0.0
	for _, p := range s.Points {
		x, y := px(p.X), py(p.Y)
		switch {
		case !finite(x) || !finite(y):
			down = false
			continue
		case !down:
			c.f("M%.1f %.1f", x, y)
		case s.Style == Steps:
			if c.f("H%.1f", x); y != lastY {
				c.f("V%.1f", y)
			}
		default:
			c.f("L%.1f %.1f", x, y)
		}
		down, lastY = true, y
	}
	c.f(`"><title>%s</title></path>`, html.EscapeString(s.tip()))
}

// axes covers all points; some is false when there are none.
func (p *Plot) axes() (x, y axis, some bool) {
	xlo, xhi, ylo, yhi := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, s := range p.Series {
		for _, q := range s.Points {
			if !finite(p.X.place(q.X)) || !finite(p.Y.place(q.Y)) {
				continue
			}
			some = true
			xlo, xhi, ylo, yhi = min(xlo, q.X), max(xhi, q.X), min(ylo, q.Y), max(yhi, q.Y)
		}
	}
	if !some {
		return x, y, false
	}
	x, y = newAxis(p.X, xlo, xhi, false), newAxis(p.Y, ylo, yhi, true)
	switch {
	case p.Whole:
		x = wholeAxis(xlo, xhi)
	case p.X == Linear:
		x.tighten(xlo, xhi)
	}
	return x, y, true
}

type legendItem struct {
	i, row int
	x      float64
}

// legend places the names in rows. A single series needs none: the title says what it is.
func (p *Plot) legend() (items []legendItem, rows int) {
	if len(p.Series) < 2 {
		return nil, 0
	}
	x, row := 0.0, 0
	for i, s := range p.Series {
		if s.Name == "" {
			continue
		}
		w := 23 + charWidth*float64(len([]rune(s.Name))) + 18
		if x > 0 && x+w > width-12 {
			x, row = 0, row+1
		}
		items = append(items, legendItem{i, row, x})
		x += w
	}
	return items, row + 1
}

// alt says in words what the picture shows.
func (p *Plot) alt() string {
	var names []string
	for _, s := range p.Series {
		if s.Name != "" {
			names = append(names, s.Name)
		}
	}
	return fmt.Sprintf("%s: %s over %s; %s", p.Title, p.YLabel, p.XLabel, strings.Join(names, ", "))
}

func color(n int) (k int, dash bool) { return n % 8, n%16 >= 8 }

func dashed(d bool) string {
	if d {
		return " dash"
	}
	return ""
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func short(v float64) string { return fmt.Sprintf("%.4g", v) }
