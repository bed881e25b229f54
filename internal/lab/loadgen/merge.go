package loadgen

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// MergeError says why run directories do not belong together.
type MergeError struct{ Problems []string }

func (e *MergeError) Error() string { return strings.Join(e.Problems, "; ") }

// part is one generator's run directory.
type part struct {
	dir    string
	run    *report.Run
	rows   []report.Row
	gaps   *hdrhistogram.Histogram
	series *seconds
	began  time.Time
	shift  int64 // nanoseconds from the merged run's start to this one's
}

// Merge joins the run directories of several generators that loaded one server at the same time into one run, written
// to out. Percentiles come from the rows, marks are joined. Moments of different generators are compared by the clocks
// of their hosts, and StartedAt, which has milliseconds; latencies are not. What cannot be joined exactly is absent:
// the chunk gaps of the steady window, and what generators say of the same process in different ways. Directories that
// do not belong together give a *MergeError.
func Merge(dirs []string, out, label string, log *slog.Logger) (*report.Run, error) {
	if len(dirs) < 2 {
		return nil, fmt.Errorf("merge needs the run directories of two generators or more, got %d", len(dirs))
	}
	var parts []*part
	var errs []error
	for _, d := range dirs {
		p, err := readPart(d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		parts = append(parts, p)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if err := belong(parts); err != nil {
		return nil, err
	}
	m := &merger{parts: parts, log: log}
	run, err := m.join(label)
	if err != nil {
		return nil, err
	}
	dir, err := report.Create(out)
	if err != nil {
		return nil, err
	}
	for i := range m.rows {
		dir.Add(&m.rows[i])
	}
	err = dir.Finish(run, m.series())
	if m.gaps != nil {
		err = errors.Join(err, writeGaps(out, m.gaps))
	}
	return run, err
}

func readPart(dir string) (*part, error) {
	run, err := report.Read(dir)
	if err != nil {
		return nil, err
	}
	p := &part{dir: dir, run: run}
	var bad []*report.BadRow
	if p.rows, bad, err = report.ReadRows(dir); err != nil {
		return nil, err
	}
	for _, b := range bad {
		return nil, fmt.Errorf("%s: %w (a merged run would count it as never made)", dir, b)
	}
	if p.began, err = time.Parse(time.RFC3339, run.StartedAt); err != nil {
		return nil, fmt.Errorf("%s: started_at: %w", dir, err)
	}
	if p.gaps, err = readGaps(dir); err != nil {
		return nil, err
	}
	p.series, err = readSeconds(dir)
	return p, err
}

// own are settings that each generator has for itself; all others must be the same.
var own = map[string]bool{
	"url": true, "concurrency": true, "request_count": true, "warmup_request_count": true, "request_rate": true,
	"random_seed": true, "label": true,
	"artifact_dir": true, "ui": true, "format": true, "metrics_url": true, "client": true, fallbackKey: true,
	"client_loops": true, "client_tick": true, "run_info": true,
	"log_level": true, "log_format": true, "threshold": true, "max_error_rate": true,
}

// summed are settings whose sum is the merged run's.
var summed = []string{"concurrency", "request_count", "warmup_request_count", "request_rate"}

// belong says why the parts are not one load.
func belong(parts []*part) error {
	var e MergeError
	bad := func(format string, a ...any) { e.Problems = append(e.Problems, fmt.Sprintf(format, a...)) }
	first := parts[0]
	seen := map[string]string{}
	for _, p := range parts {
		if at, ok := seen[p.run.ID]; ok {
			bad("%s and %s hold the same run %s", at, p.dir, p.run.ID)
		}
		seen[p.run.ID] = p.dir
		if p.run.Raw == nil {
			bad("%s has no measured request", p.dir)
		}
	}
	for _, p := range parts[1:] {
		keys := map[string]bool{}
		for k := range first.run.Config {
			keys[k] = true
		}
		for k := range p.run.Config {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if a, b := fmt.Sprint(first.run.Config[k]), fmt.Sprint(p.run.Config[k]); !own[k] && a != b {
				bad("%s was run with %s %s, %s with %s", first.dir, k, a, p.dir, b)
			}
		}
		if a, b := first.run.Environment.Revision, p.run.Environment.Revision; a != b {
			bad("%s is of revision %q, %s of %q", first.dir, a, p.dir, b)
		}
	}
	for i, p := range parts {
		for _, q := range parts[i+1:] {
			if p.run.Raw != nil && q.run.Raw != nil && (p.at(p.run.Raw.EndS).Before(q.at(q.run.Raw.StartS)) ||
				q.at(q.run.Raw.EndS).Before(p.at(p.run.Raw.StartS))) {
				bad("%s and %s did not run at the same time (%s to %s, %s to %s)", p.dir, q.dir,
					report.Stamp(p.at(p.run.Raw.StartS)), report.Stamp(p.at(p.run.Raw.EndS)),
					report.Stamp(q.at(q.run.Raw.StartS)), report.Stamp(q.at(q.run.Raw.EndS)))
			}
		}
	}
	if len(e.Problems) > 0 {
		return &e
	}
	return nil
}

// at is a moment of the run's clock on the wall clock.
func (p *part) at(s float64) time.Time { return p.began.Add(time.Duration(s * float64(time.Second))) }

// merger holds what is joined.
type merger struct {
	parts []*part
	log   *slog.Logger
	rows  []report.Row
	gaps  *hdrhistogram.Histogram
}

func (m *merger) join(label string) (*report.Run, error) {
	first := slices.MinFunc(m.parts, func(a, b *part) int { return a.began.Compare(b.began) })
	run := &report.Run{
		Schema: report.Schema, ID: "merged-" + strings.TrimPrefix(first.run.ID, "lg-"), Label: label,
		StartedAt: first.run.StartedAt, Marks: []string{},
		Config: m.config(), Environment: first.run.Environment,
	}
	m.gaps = report.NewGaps()
	for _, p := range m.parts {
		p.shift = int64(p.began.Sub(first.began))
		for _, r := range p.rows {
			for _, t := range []*int64{&r.Intended, &r.Sent, &r.First, &r.Last, &r.End} {
				if *t != report.Absent {
					*t += p.shift
				}
			}
			m.rows = append(m.rows, r)
		}
		for _, mark := range p.run.Marks {
			run.Mark(mark)
		}
		if p.gaps == nil {
			m.gaps = nil
		} else if m.gaps != nil {
			m.gaps.Merge(p.gaps)
		}
	}
	text, _ := run.Config["goodput"].(string)
	slo, err := report.ParseSLO(text)
	if err != nil {
		return nil, fmt.Errorf("%s: goodput %w", m.parts[0].dir, err)
	}
	if span, ok := report.RawSpan(m.rows); ok {
		run.Raw = report.Summarize(m.rows, span, m.gaps, slo)
		m.cpu(run.Raw, span)
	}
	if span, ok := m.steady(); ok {
		run.Steady = report.Summarize(m.rows, span, nil, slo)
		m.cpu(run.Steady, span)
		if run.Steady.Requests+run.Steady.Errors == 0 {
			run.Steady = nil
		}
	}
	run.Warmup = report.SummarizeWarmup(m.rows)
	report.MarkRows(run, m.rows)
	var failed report.ErrorKinds
	for _, p := range m.parts {
		failed.Join(p.run.Errors)
	}
	run.Errors = failed.List()
	m.processes(run)
	run.Plane, run.UDP = m.plane()
	addHolders(run, m.rows)
	run.Client = m.client()
	return run, nil
}

// config is what all parts have, the sums, and the ids of the parts.
func (m *merger) config() map[string]any {
	out := map[string]any{}
	var ids []string
	for k, v := range m.parts[0].run.Config {
		if !own[k] {
			out[k] = v
		}
	}
	for _, k := range summed {
		total := 0.0
		for _, p := range m.parts {
			f := foreign{run: p.run}
			total += f.setting(k)
		}
		out[k] = total
	}
	var fell []string
	for _, p := range m.parts {
		ids = append(ids, p.run.ID)
		if why, _ := p.run.Config[fallbackKey].(string); why != "" && !slices.Contains(fell, why) {
			fell = append(fell, why)
		}
	}
	out["merged"] = ids
	if len(fell) > 0 {
		out[fallbackKey] = strings.Join(fell, "; ")
	}
	return out
}

// steady is the window in which every generator was in its steady window: only then was the whole load held.
func (m *merger) steady() (s report.Span, ok bool) {
	for i, p := range m.parts {
		w := p.run.Steady
		if w == nil {
			return report.Span{}, false
		}
		from, to := int64(w.StartS*1e9)+p.shift, int64(w.EndS*1e9)+p.shift
		if i == 0 {
			s = report.Span{Start: from, End: to}
		}
		s.Start, s.End = max(s.Start, from), min(s.End, to)
	}
	return s, s.End > s.Start
}

// client joins what the generators say of themselves: the worst counts.
func (m *merger) client() report.Client {
	var c report.Client
	var kinds []string
	for _, p := range m.parts {
		q := p.run.Client
		c.Limited = c.Limited || q.Limited
		if q.ScheduleDelayP99 != nil && (c.ScheduleDelayP99 == nil || *q.ScheduleDelayP99 > *c.ScheduleDelayP99) {
			c.ScheduleDelayP99 = q.ScheduleDelayP99
		}
		if q.Tick != nil && (c.Tick == nil || *q.Tick > *c.Tick) {
			c.Tick = q.Tick
		}
		if !slices.Contains(kinds, q.Kind) {
			kinds = append(kinds, q.Kind)
		}
	}
	slices.Sort(kinds)
	c.Kind = strings.Join(kinds, ", ")
	return c
}

// processes lists every process once. Generators are told apart by their runs; what several say of one other process is
// taken from the one that watched it longest.
func (m *merger) processes(run *report.Run) {
	for _, p := range m.parts {
		for _, q := range p.run.Processes {
			if q.Role == "loadgen" {
				q.Name = p.run.ID
			}
			q.Requests, q.MeanFirstResponse, q.Holder = nil, nil, nil // of one generator's requests only
			i := slices.IndexFunc(run.Processes,
				func(have report.Process) bool { return have.Role == q.Role && have.Name == q.Name })
			switch {
			case i < 0:
				run.Processes = append(run.Processes, q)
			case q.CPUSeconds != nil && (run.Processes[i].CPUSeconds == nil ||
				*q.CPUSeconds > *run.Processes[i].CPUSeconds):
				run.Processes[i] = q
			}
		}
	}
}

// watched are the names of the processes of a role that a part has read.
func (p *part) watched(role string) string {
	var names []string
	for _, q := range p.run.Processes {
		if q.Role == role && q.CPUSeconds != nil {
			names = append(names, q.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, "\x00")
}

// watcher is the part that has read the processes of a role. Where several have and do not name the same ones, no part
// speaks for all.
func (m *merger) watcher(role string) *part {
	var best *part
	for _, p := range m.parts {
		w := p.watched(role)
		switch {
		case w == "":
		case best == nil:
			best = p
		case best.watched(role) != w:
			return nil
		case len(p.rows) > len(best.rows):
			best = p
		}
	}
	return best
}

// plane is what the frontends counted, as the part says that saw the most of it.
func (m *merger) plane() (*report.Plane, *report.UDP) {
	if p := m.watcher(roleFrontend); p != nil {
		return p.run.Plane, p.run.UDP
	}
	if slices.ContainsFunc(m.parts, func(p *part) bool { return p.run.Plane != nil }) {
		m.log.Warn("the generators read the metrics of different frontends: what the plane counted is left out; give " +
			"all of them the same --metrics-url")
	}
	return nil, nil
}
