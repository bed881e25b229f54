package mux

import (
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// Totals in which no stream would ever get a window are refused, with the least that would do.
func TestTotalsTooSmallForAWindow(t *testing.T) {
	least := int64(windowShare * wire.MinWindow)
	for _, c := range []struct {
		cfg  Config
		want string // in the complaint; empty: there is none
	}{
		{Config{MaxBuffered: least}, ""},
		{Config{MaxBuffered: least - 1}, "MaxBuffered is 4194303: below 4194304"},
		{Config{MaxReplay: wire.MinWindow}, ""},
		{Config{MaxReplay: wire.MinWindow - 1}, "MaxReplay is 4095"},
	} {
		err := c.cfg.Validate()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if strings.Contains(got, "Max") != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%d, %d: %q, expected %q", c.cfg.MaxBuffered, c.cfg.MaxReplay, got, c.want)
		}
	}
}
