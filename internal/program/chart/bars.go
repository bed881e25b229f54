package chart

import "html"

// Bar is one line of Bars.
type Bar struct {
	Label string
	Value float64
	Text  string // stands behind the bar
	// Marked bars have the other colour.
	Marked bool
}

// Bars is a picture of one value each of several things, from the top down.
type Bars struct {
	Title string
	Items []Bar
}

const barStep = 22

// SVG is the picture as one element, for a page that has CSS.
func (b *Bars) SVG() string {
	var c canvas
	top := 8.0
	if b.Title != "" {
		top = 30
	}
	label, text, most := 0, 0, 0.0
	for _, i := range b.Items {
		label, text, most = max(label, len([]rune(i.Label))), max(text, len([]rune(i.Text))), max(most, i.Value)
	}
	left := min(12+charWidth*float64(label), width/3)
	room := width - left - min(charWidth*float64(text)+16, width/2)
	c.f(`<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 %d %.0f" aria-label="%s">`, width,
		top+float64(len(b.Items))*barStep+8, html.EscapeString(b.Title))
	if b.Title != "" {
		c.text(4, 18, "title", "start", b.Title)
	}
	for n, i := range b.Items {
		y := top + float64(n)*barStep
		w := 0.0
		if most > 0 && finite(i.Value) && i.Value > 0 {
			w = i.Value / most * room
		}
		class := "bar"
		if i.Marked {
			class = "bar marked"
		}
		c.text(left-6, y+15, "legend", "end", clip(i.Label, int((left-12)/charWidth)+1))
		c.f(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="2"><title>%s: %s</title></rect>`, class,
			left, y+3, max(w, 1), barStep-6,
			html.EscapeString(i.Label), html.EscapeString(i.Text))
		c.text(left+max(w, 1)+6, y+15, "value", "start", i.Text)
	}
	c.f(`</svg>`)
	return c.String()
}

func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n || n < 2 {
		return s
	}
	return string(r[:n-1]) + "…"
}
