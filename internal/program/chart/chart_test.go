package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// elements reads a picture as XML: what a browser would not draw fails here.
func elements(t *testing.T, svg string) (out []xml.StartElement, text []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out, text
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			out = append(out, e.Copy())
		case xml.CharData:
			text = append(text, string(e))
		}
	}
}

func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func TestPlotPlacesPoints(t *testing.T) {
	p := Plot{Title: "a <b> & \"c\"", XLabel: "x", YLabel: "ms", Bands: []Band{{2, 4, "steady"}}, Series: []Series{
		{Name: "<script>alert(1)</script>", Style: Dots, Points: []Point{{0, 0}, {10, 100}, {5, 50}, {math.NaN(), 1},
			{1, math.Inf(1)}}},
		{Name: "line", Color: 1, Points: []Point{{0, 10}, {5, 20}, {6, math.NaN()}, {7, 5}}},
	}}
	els, text := elements(t, p.SVG())
	var dots [][2]float64
	band := ""
	path := ""
	for _, e := range els {
		switch {
		case e.Name.Local == "script":
			t.Error("a series' name became an element")
		case e.Name.Local == "circle" && attr(e, "cx") != "15.0": // not the legend's
			x, err1 := strconv.ParseFloat(attr(e, "cx"), 64)
			y, err2 := strconv.ParseFloat(attr(e, "cy"), 64)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			dots = append(dots, [2]float64{x, y})
		case attr(e, "class") == "band":
			band = attr(e, "x") + "+" + attr(e, "width")
		case attr(e, "class") == "line k1" && strings.Contains(attr(e, "d"), "L"):
			path = attr(e, "d")
		}
	}
	if len(dots) != 3 || dots[0][0] != leftRoom || dots[1][0] != width-rightRoom ||
		dots[2][0] != (leftRoom+width-rightRoom)/2 ||
		dots[0][1]-dots[1][1] != plotHeight || dots[2][1] != (dots[0][1]+dots[1][1])/2 {
		t.Errorf("dots %v", dots)
	}
	if band != "153.2+95.2" {
		t.Errorf("band %s", band)
	}
	if strings.Count(path, "M") != 2 || strings.Count(path, "L") != 1 {
		t.Errorf("a gap does not interrupt the line: %s", path)
	}
	if !strings.Contains(strings.Join(text, "|"), `a <b> & "c"`) {
		t.Errorf("no title in %q", text)
	}
	elements(t, p.File())
	empty := Plot{Title: "t", Series: []Series{{Name: "x"}}}
	if _, text := elements(t, empty.SVG()); !strings.Contains(strings.Join(text, ""), "nothing was measured") {
		t.Error("an empty plot does not say so")
	}
}

func TestAxes(t *testing.T) {
	for _, c := range []struct {
		scale  Scale
		lo, hi float64
		want   string
	}{
		{Linear, 0, 10, "0 2 4 6 8 10"}, {Linear, 3, 99, "0 20 40 60 80 100"},
		{Linear, 0, 0, "0.0 0.2 0.4 0.6 0.8 1.0"}, {Linear, 0, 8192, "0 2,000 4,000 6,000 8,000 10,000"},
		{Linear, 0, 0.03, "0.00 0.01 0.02 0.03"}, {Linear, -2, 2, "-2 -1 0 1 2"},
		{Log, 3, 4000, "1 10 100 1,000 10,000"}, {Log, 20, 45, "20 50"}, {Log, 0.05, 0.4, "0.05 0.1 0.2 0.5"},
		{Log, 7, 7, "5 10"}, {Log, 5, 5, "5 10"},
		{Nines, 0, .9995, "0% 50% 90% 99% 99.9%"}, {Nines, 0, .5, "0% 50% 90%"},
	} {
		a := newAxis(c.scale, c.lo, c.hi, true)
		var got []string
		for _, k := range a.ticks {
			got = append(got, k.text)
			if at := a.scale.place(k.at); at < a.lo-1e-9 || at > a.hi+1e-9 {
				t.Errorf("%v to %v: tick %s is off the axis", c.lo, c.hi, k.text)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("scale %d, %v to %v: %s, want %s", c.scale, c.lo, c.hi, s, c.want)
		}
		if a.scale.place(c.hi) > a.hi+1e-9 || a.hi <= a.lo {
			t.Errorf("%v to %v: range %v to %v", c.lo, c.hi, a.lo, a.hi)
		}
	}
}

// TestXAxes holds that the X axis ends with the values, and that counts have whole ticks.
func TestXAxes(t *testing.T) {
	ticks := func(p Plot) (string, axis) {
		x, _, ok := p.axes()
		if !ok {
			t.Fatal("no axes")
		}
		var out []string
		for _, k := range x.ticks {
			out = append(out, k.text)
		}
		return strings.Join(out, " "), x
	}
	of := func(x ...float64) []Series {
		var s Series
		for _, v := range x {
			s.Points = append(s.Points, Point{v, 1})
		}
		return []Series{s}
	}
	for _, c := range []struct {
		plot   Plot
		want   string
		lo, hi float64
	}{
		{Plot{Series: of(.5, 106.5)}, "0 50 100", 0, 106.5}, {Plot{Series: of(2000, 2040)},
			"2,000 2,010 2,020 2,030 2,040", 2000, 2040}, {Plot{Series: of(5)}, "5.0 5.2 5.4 5.6 5.8 6.0", 5, 6},
		{Plot{Whole: true, Series: of(1.9, 2.1)}, "2", 1.5, 2.5}, {Plot{Whole: true, Series: of(-.1, 4.1)}, "0 1 2 3 4",
			-.5, 4.5}, {Plot{Whole: true, Series: of(0, 40)}, "0 5 10 15 20 25 30 35 40", -.5, 40.5},
	} {
		if got, x := ticks(c.plot); got != c.want || x.lo != c.lo || x.hi != c.hi {
			t.Errorf("ticks %s from %v to %v, want %s from %v to %v", got, x.lo, x.hi, c.want, c.lo, c.hi)
		}
	}
}

func TestBars(t *testing.T) {
	b := Bars{Title: "x", Items: []Bar{{"a&b", 10, "10 ms", false}, {"c", 40, "40 ms", true}, {"d", 0, "none", false}}}
	els, _ := elements(t, b.SVG())
	var w []float64
	marked := 0
	for _, e := range els {
		if e.Name.Local != "rect" {
			continue
		}
		v, err := strconv.ParseFloat(attr(e, "width"), 64)
		if err != nil {
			t.Fatal(err)
		}
		w = append(w, v)
		if attr(e, "class") == "bar marked" {
			marked++
		}
	}
	if len(w) != 3 || math.Abs(w[1]/w[0]-4) > .01 || w[2] != 1 || marked != 1 {
		t.Errorf("widths %v, %d marked", w, marked)
	}
}
