package analysis

import (
	"fmt"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// judge decides whether the run's numbers may be used, and fills in Window.
func (r *Run) judge(opts Options, raw, chosen *report.Window) {
	aside := func(format string, a ...any) { r.Aside = append(r.Aside, fmt.Sprintf(format, a...)) }
	rep := r.Report
	if err := rep.Verdict(opts.MaxErrorRate); err != nil {
		r.Aside = append(r.Aside, strings.Split(err.Error(), "\n")...)
	}
	var err error
	if r.Started, err = time.Parse(time.RFC3339, rep.StartedAt); err != nil {
		aside("started_at is %q, not a time with an offset (like 2026-01-02T15:04:05+01:00): nothing can be lined up "+
			"with it", rep.StartedAt)
	}
	for _, m := range rep.Marks {
		switch {
		case m == report.MarkNoProof: // the verdict says it
		case contains(Allowable(), m) && !contains(opts.Allow, m):
			aside("marked %s: %s", m, report.MarkMeaning(m))
		case report.MarkMeaning(m) == "":
			r.note("marked %s", m)
		default:
			r.note("marked %s: %s", m, report.MarkMeaning(m))
		}
	}
	if why := rep.TransitError(); why != "" && !rep.Marked(report.MarkNoProof) {
		aside("no proof of transit: %s", why)
	}
	if share := float64(r.Bad.Count) / float64(max(1, r.Bad.Count+r.Rows)); share > maxBadShare {
		aside("%d of %d rows cannot be read (%v): what is left is not the run", r.Bad.Count, r.Bad.Count+r.Rows,
			r.Bad.First[0])
	} else if r.Bad.Count > 0 {
		r.note("%d bad rows of %d left out: %v", r.Bad.Count, r.Bad.Count+r.Rows, r.Bad.First[0])
	}
	switch {
	case raw == nil:
	case chosen == nil || chosen.Requests == 0:
		aside("no request completed in the %s window: what there is may be the opening burst", opts.Window)
	default:
		if why := disagreement(WindowRaw, rep.Raw, raw, r.Bad.Count); why != "" {
			aside("%s", why)
		} else if opts.Window == WindowSteady {
			if why := disagreement(WindowSteady, rep.Steady, chosen, r.Bad.Count); why != "" {
				aside("%s", why)
			}
		}
		if rep.Holders != nil && *rep.Holders != r.Holders && r.Bad.Count == 0 {
			aside("%s counts %d holders, the rows show %d", report.RunFile, *rep.Holders, r.Holders)
		}
		if n, ok := rep.Config["holders"].(float64); ok && n > 0 && int(n) != r.Holders && r.Holders >= 0 {
			r.note("made with %s on purpose, the rows show %d", holdersText(int(n)), r.Holders)
		}
		r.use(opts, chosen)
	}
	for _, n := range rep.Notices() {
		if n != rep.TransitError() && !(err != nil && strings.HasPrefix(n, "started_at")) {
			r.note("%s", n)
		}
	}
}

// use takes the window's CPU figures and chunk gaps from run.json: rows do not have them.
func (r *Run) use(opts Options, w *report.Window) {
	from := r.Report.Raw
	if opts.Window == WindowSteady {
		from = r.Report.Steady
	}
	w.ICL = from.ICL
	w.FrontendCPU, w.WorkerCPU, w.LoadgenCPU, w.MachineBusy = from.FrontendCPU, from.WorkerCPU, from.LoadgenCPU,
		from.MachineBusy
	r.Window = w
}

func (r *Run) note(format string, a ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, a...)) }

// errors counts all failed requests of the run, warm-up included: a latency is that of the survivors only.
func (r *Run) errors() int {
	n := r.Report.Raw.Errors
	if r.Report.Warmup != nil {
		n += r.Report.Warmup.Errors
	}
	return n
}
