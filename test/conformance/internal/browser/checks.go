package browser

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"testing"
)

// Contrast holds that the text of these elements, at least so many, can be read: a contrast of 4.5 to 1 with what is
// behind it.
func (b *Browser) Contrast(selector string, least int) {
	t := b.T
	t.Helper()
	var pairs []struct{ Text, Ink, Ground string }
	b.Eval(`[...document.querySelectorAll('`+selector+`')].map(e => {
		let g = e
		while (g && getComputedStyle(g).backgroundColor == 'rgba(0, 0, 0, 0)') g = g.parentElement
		const s = getComputedStyle(e)
		return {text: e.textContent.slice(0, 30), ink: e instanceof SVGElement ? s.fill : s.color, ground: getComputedStyle(g || document.body).backgroundColor}
	})`, &pairs)
	if len(pairs) < least {
		t.Fatalf("%d texts on the page, expected at least %d", len(pairs), least)
	}
	for _, p := range pairs {
		if c := contrast(luminance(t, p.Ink), luminance(t, p.Ground)); c < 4.5 {
			t.Errorf("%q: %s on %s has a contrast of %.1f", p.Text, p.Ink, p.Ground, c)
		}
	}
}

func contrast(a, b float64) float64 { return (max(a, b) + .05) / (min(a, b) + .05) }

func luminance(t *testing.T, css string) float64 {
	t.Helper()
	var r, g, b float64
	if _, err := fmt.Sscanf(css, "rgb(%f, %f, %f)", &r, &g, &b); err != nil {
		t.Fatalf("colour %q: %v", css, err)
	}
	lin := func(v float64) float64 {
		if v /= 255; v <= .03928 {
			return v / 12.92
		}
		return math.Pow((v+.055)/1.055, 2.4)
	}
	return .2126*lin(r) + .7152*lin(g) + .0722*lin(b)
}

// CheckPicture holds that no part of the picture is blank, from the top down.
func CheckPicture(t *testing.T, raw []byte, parts int) {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	bounds := img.Bounds()
	ground := img.At(bounds.Min.X+1, bounds.Min.Y+1)
	for q := range parts {
		ink := 0
		for y := bounds.Dy() * q / parts; y < bounds.Dy()*(q+1)/parts; y += 2 {
			for x := 0; x < bounds.Dx(); x += 2 {
				if img.At(x, y) != ground {
					ink++
				}
			}
		}
		if ink < 50 {
			t.Errorf("part %d of the picture is blank (%d points)", q+1, ink)
		}
	}
}
