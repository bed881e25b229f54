package cli

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestCheckConfig(t *testing.T) {
	for _, c := range []struct {
		args, env []string
		code      int
		lines     []string // each stands in the output
	}{
		{args: []string{"--lanes", "3"}, env: []string{"LANEWAY_URL=x"}},
		{args: []string{"--lanes", "0", "--nonsense"}, env: []string{"LANEWAY_LANE=2", "OTHER=1"}, code: ExitFailure,
			lines: []string{"prog: --lanes 0: ", "prog: --nonsense: there is no such flag",
				"prog: LANEWAY_LANE: sets nothing in prog", "LANEWAY_LANES"}},
		{args: []string{"--lanes", "4"}, code: ExitFailure, lines: []string{"prog: the whole"}},
		{env: []string{"LANEWAY_URLS=x"}, code: ExitFailure,
			lines: []string{"prog: LANEWAY_URLS: sets nothing in prog"}},
	} {
		a, out, errs := newTest(c.env...)
		g := a.Group("Load")
		g.Int("lanes", 1, Range(1, 16), "lanes")
		g.String("url", "", "server")
		a.CheckLast(func() error {
			if len(c.lines) > 0 && c.lines[0] != "prog: the whole" {
				if len(c.args) > 0 {
					t.Errorf("%v: the whole is checked though a part is wrong", c.args)
				}
				return nil
			}
			if len(c.lines) > 0 {
				return errors.New("the whole does not fit")
			}
			return nil
		})
		args := append(c.args, "--check-config")
		if code := a.Run(args,
			func(context.Context,
				*slog.Logger) error {
				t.Errorf("%v: something was done", c.args)
				return nil
			}); code != c.code {
			t.Errorf("%v: code %d", c.args, code)
		}
		for _, l := range c.lines {
			if !strings.Contains(errs.String(), l) {
				t.Errorf("%v: %q is not in %q", c.args, l, errs)
			}
		}
		if len(c.lines) == 0 && (out.Len() > 0 || errs.Len() > 0) {
			t.Errorf("%v: a good configuration prints %q %q", c.args, out, errs)
		}
		if _, there := a.Values()[checkConfigFlag]; there {
			t.Error("the flag is about the program, not a setting of the run")
		}
	}
}
