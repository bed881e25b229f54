package analysis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/chart"
)

// Run is one run directory, read.
type Run struct {
	Dir, Name string
	// Report is run.json. It is nil for a run whose load generator was killed before it wrote one.
	Report  *report.Run
	Started time.Time
	// Window holds the rates, latencies and counts of the chosen window, computed from the rows; CPU figures are
	// run.json's. It is nil when the run has no such window.
	Window *report.Window
	// Holders and Reference are counted from the rows; -1 when the responses do not name their worker process.
	Holders, Reference int
	Loads              []report.ProcessLoad
	Bad                report.Bad
	Rows               int // that could be read
	Config             Config
	// Aside says why the run's numbers may not be used; empty when they may.
	Aside []string
	// Notes say what a reader should know of a run that is used.
	Notes []string

	ttft, itl []chart.Point // percentile curves, milliseconds
}

// maxBadShare is the share of rows past which what is left is no longer the run.
const maxBadShare = 0.01

// Load reads run directories, in order. A folder without a run of its own stands for all runs right below it. An error
// means that the input is wrong: a folder that is no run, a run.json that cannot be read, or a run given twice. Runs
// that were read but may not be used are returned, with Aside set.
func Load(ctx context.Context, dirs []string, opts Options) ([]*Run, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	all, err := expand(dirs)
	if err != nil {
		return nil, err
	}
	var runs []*Run
	ids := map[string]string{}
	for _, dir := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := load(dir, opts)
		if err != nil {
			return nil, &InputError{dir, err}
		}
		if r.Report != nil {
			if other, ok := ids[r.Report.ID]; ok && r.Report.ID != "" {
				return nil, &InputError{dir, fmt.Errorf("it holds the same run as %s: give each run once", other)}
			}
			ids[r.Report.ID] = dir
		}
		runs = append(runs, r)
	}
	nameAll(runs)
	return runs, nil
}

// expand replaces folders of runs by the runs in them.
func expand(dirs []string) ([]string, error) {
	var out []string
	for _, dir := range dirs {
		st, err := os.Stat(dir)
		if err != nil {
			return nil, &InputError{dir, err}
		}
		if !st.IsDir() {
			return nil, &InputError{dir, errors.New("it is a file: give the run directory, which holds run.json")}
		}
		if isRun(dir) {
			out = append(out, filepath.Clean(dir))
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, &InputError{dir, err}
		}
		found := false
		for _, e := range entries {
			if sub := filepath.Join(dir, e.Name()); isRun(sub) {
				out, found = append(out, sub), true
			}
		}
		if !found {
			return nil,
				&InputError{dir,
					fmt.Errorf("it holds no %s and no run directories: give the folder that loadgen or cluster wrote",
						report.RunFile)}
		}
	}
	return out, nil
}

// isRun tells whether dir holds a run, a finished one or one that was cut off.
func isRun(dir string) bool {
	for _, f := range []string{report.RunFile, report.RowsFile} {
		if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
			return true
		}
	}
	return false
}

func load(dir string, opts Options) (*Run, error) {
	r := &Run{Dir: dir, Name: filepath.Base(dir), Holders: -1, Reference: -1}
	rep, err := report.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		r.Aside = []string{"it has no " + report.RunFile + ": the load generator did not end its run"}
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r.Report = rep
	r.Config = configOf(rep)
	raw, chosen, err := r.scan(opts)
	if err != nil {
		return nil, err
	}
	r.judge(opts, raw, chosen)
	return r, nil
}

// scan reads the rows once and computes the raw and the chosen window (the same when raw is chosen, nil when run.json
// has none) and the holders.
func (r *Run) scan(opts Options) (raw, chosen *report.Window, err error) {
	sums := make([]*report.Summary, 0, 2)
	if w := r.Report.Raw; w != nil {
		sums = append(sums, report.NewSummary(w.Span(), report.SLO{}))
	}
	steady := opts.Window == WindowSteady && r.Report.Steady != nil && len(sums) > 0
	if steady {
		sums = append(sums, report.NewSummary(r.Report.Steady.Span(), report.SLO{}))
	}
	var holders report.HolderFinder
	r.Bad, err = report.ScanDir(r.Dir, func(row *report.Row) {
		r.Rows++
		holders.Add(row)
		for _, s := range sums {
			s.Add(row)
		}
	})
	if err != nil || len(sums) == 0 {
		return nil, nil, err
	}
	if r.Loads = holders.Loads(); r.Loads != nil {
		r.Holders, r.Reference = report.CountHolders(r.Loads)
	}
	r.checkMetric(holders.ITL())
	raw = sums[0].Window(nil)
	if opts.Window == WindowSteady && !steady {
		return raw, nil, nil
	}
	last := sums[len(sums)-1]
	chosen = raw
	if steady {
		chosen = last.Window(nil)
	}
	r.ttft, r.itl = report.Curve(last.TTFTs()), report.Curve(last.ITLs())
	return raw, chosen, nil
}

// checkMetric holds the holders of the rows against what the workers themselves measured, where they did.
func (r *Run) checkMetric(itl float64) {
	if r.Loads == nil {
		return
	}
	var own []report.ProcessLoad
	for _, p := range r.Report.Processes {
		if p.MetricFirstResponse != nil {
			own = append(own, report.ProcessLoad{Name: p.Name, MeanFirstResponse: *p.MetricFirstResponse * 1e6})
		}
	}
	if len(own) < len(r.Loads) {
		return // not all workers were asked: nothing to hold against
	}
	report.MarkHolders(own, itl)
	if n, _ := report.CountHolders(own); n != r.Holders {
		r.Notes = append(r.Notes,
			fmt.Sprintf("the rows show %d holders, the workers' own metric %d: what kept the answers back is not "+
				"(only) in the workers", r.Holders, n))
	}
}

// disagreement says where run.json and the rows differ, "" when they do not. Rows that could not be read may be missing
// from any count.
func disagreement(which string, file, rows *report.Window, bad int) string {
	near := func(a, b int) bool { return a >= b && a-b <= bad }
	if !near(file.Requests, rows.Requests) || !near(file.Errors, rows.Errors) || file.Requests+
		file.Errors > rows.Requests+rows.Errors+bad {
		return fmt.Sprintf("%s counts %d complete and %d failed requests in the %s window, %s %d and %d",
			report.RunFile, file.Requests, file.Errors, which, report.RowsFile,
			rows.Requests, rows.Errors)
	}
	if bad > 0 {
		return ""
	}
	for _, d := range []struct {
		name string
		a, b *report.Dist
	}{{"TTFT", file.TTFT, rows.TTFT}, {"ITL", file.ITL, rows.ITL}} {
		if (d.a == nil) != (d.b == nil) {
			return fmt.Sprintf("%s and %s do not agree on whether there is a %s in the %s window", report.RunFile,
				report.RowsFile, d.name, which)
		}
		if d.a == nil {
			continue
		}
		for _, q := range []struct {
			name string
			a, b float64
		}{{"p50", d.a.P50, d.b.P50}, {"p99", d.a.P99, d.b.P99}} {
			if math.Abs(q.a-q.b) > 1e-6*math.Abs(q.b)+1e-6 {
				return fmt.Sprintf("%s says %s %s of the %s window is %.6g ms, from %s it is %.6g ms", report.RunFile,
					d.name, q.name, which, q.a, report.RowsFile, q.b)
			}
		}
	}
	return ""
}
