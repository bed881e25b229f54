package benchtable

import (
	"slices"
	"testing"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		s    Spread
		want string
	}{
		{SpreadOf(nil), "-"},
		{SpreadOf([]float64{2}), "2.00"},
		{SpreadOf([]float64{3, 1}), "2.00 [1.00-3.00]"},
		{SpreadOf([]float64{9, 1, 2}), "2.00 [1.00-9.00]"},
		{RatioOf([]float64{2, 9, 6, 7}, []float64{1, 0, 2}), "2.50 [2.00-3.00]"},
		{RatioOf([]float64{1}, []float64{0}), "-"},
	} {
		if got := c.s.String(); got != c.want {
			t.Errorf("%q, expected %q", got, c.want)
		}
	}
	if got := SpreadOf([]float64{-1, 2}).More("%+.1f"); got != "+0.5 [-1.0 to +2.0]" {
		t.Errorf("%q", got)
	}
}

func TestOrder(t *testing.T) {
	arms := []string{"a", "b", "c"}
	if got := Order(arms, 0); !slices.Equal(got, arms) {
		t.Errorf("%v", got)
	}
	if got := Order(arms, 1); !slices.Equal(got, []string{"c", "b", "a"}) || arms[0] != "a" {
		t.Errorf("%v of %v", got, arms)
	}
}
