package analysis

import (
	"context"
	"fmt"
	"io"
)

// Report reads the runs, prints the table to w, and writes the plots into out ("" = none). The table is returned also
// beside a *NotComparableError, printed.
func Report(ctx context.Context, w io.Writer, dirs []string, out string, opts Options) (*Table, error) {
	t, err := Analyze(ctx, dirs, opts)
	if t == nil {
		return nil, err
	}
	if err := t.Print(w); err != nil {
		return t, err
	}
	if err != nil || out == "" {
		return t, err
	}
	plots, err := t.WritePlots(out)
	if err != nil {
		return t, err
	}
	_, err = fmt.Fprintf(w, "\n%d plots written to %s\n", len(plots), out)
	return t, err
}
