package httpbench

import (
	"fmt"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// Schema is the version of Report.
const Schema = "laneway.bench.http/1"

// Report is run.json. What was not measured is absent.
type Report struct {
	Schema      string             `json:"schema"`
	ID          string             `json:"id"`
	Label       string             `json:"label,omitempty"`
	StartedAt   string             `json:"started_at"`
	Config      map[string]any     `json:"config"` // every flag in force
	Environment report.Environment `json:"environment"`
	Runs        []*Run             `json:"runs"` // in the order in which they were run
	Ratios      []Ratio            `json:"ratios,omitempty"`
	Added       []Added            `json:"added,omitempty"`
	Growth      []Growth           `json:"growth,omitempty"`
}

// Run is one run of one arm. Figures are of the window unless they say otherwise.
type Run struct {
	Arm      string  `json:"arm"`
	Streams  int     `json:"streams"`
	Run      int     `json:"run"` // 1 = first of this arm at these streams
	Interval float64 `json:"interval_ms"`
	WindowS  float64 `json:"window_s"`
	OutPath  string  `json:"out_path"`

	Tokens       uint64  `json:"tokens"`   // that the frontend took
	Requests     float64 `json:"requests"` // tokens / tokens of a response
	RequestsPerS float64 `json:"requests_per_s"`
	OfferedPerS  float64 `json:"offered_per_s"` // what the engines would serve if every response were open all the time
	Completed    int     `json:"completed"`     // as the client saw it

	CompletedAll int      `json:"completed_all"` // of the whole run
	TokensAll    uint64   `json:"tokens_all"`
	ErrorsAll    int      `json:"errors_all"`
	Wrong        int      `json:"wrong_tokens"`      // of the whole run
	Invalid      string   `json:"invalid,omitempty"` // why the run proves nothing
	Notes        []string `json:"notes,omitempty"`   // the first errors and wrong responses
	Marks        []string `json:"marks,omitempty"`   // what makes its figures doubtful
	HostBusy     *float64 `json:"host_busy,omitempty"`
	ClientLate   *float64 `json:"client_late_p99_ms,omitempty"`

	TTFT *report.Dist `json:"ttft_ms,omitempty"`
	ITL  *report.Dist `json:"itl_ms,omitempty"`

	Frontend Side    `json:"frontend"`
	Worker   *Side   `json:"worker,omitempty"` // absent in process
	Client   Side    `json:"client"`
	TotalMS  float64 `json:"cpu_ms_per_request"` // of frontend and workers
	// Engines is of the arm in-process: what engines without a plane and without clients use in a process of their own
	// under the same load. The frontend's figure has as much in it that is no part of the out path.
	Engines *Side `json:"engines_alone,omitempty"`
	// MissedShare is the share of the engines' passes that were missed because the one before was late.
	MissedShare *float64 `json:"missed_passes,omitempty"`
}

// Side is all processes of one role.
type Side struct {
	CPUMS      float64 `json:"cpu_ms_per_request"`
	SystemMS   float64 `json:"system_ms_per_request"` // of it
	TokenUS    float64 `json:"cpu_us_per_token"`
	RSSPeak    int64   `json:"rss_peak_bytes,omitempty"`              // of the largest process
	RSSPerOpen float64 `json:"rss_bytes_per_open_response,omitempty"` // of a frontend
}

// Marks of runs, beside those of planebench. A run with one is left out of the ratios.
// the client's own loops were late, or it used the processor time that it can use
const MarkClientLimited = "client-limited"

func newReport(cfg Config) *Report {
	now := time.Now()
	return &Report{Schema: Schema, ID: report.Name("http", now), Label: cfg.Label, StartedAt: report.Stamp(now),
		Config: cfg.Flags, Environment: planebench.Environment()}
}

// measured is what the processes of a run have said. windows are of the workers, the frontend, the client, and in
// process of the engines alone; totals of the workers and the frontend.
type measured struct {
	lasted          time.Duration
	busy, leastBusy float64
	busyKnown       bool
	outPath         string
	windows, totals []message
	seen            seen
}

// summarize makes a Run of it.
func summarize(a Arm, load Load, rep int, m measured) *Run {
	n := len(m.totals) - 1 // workers
	front, client := *m.windows[n].Usage, *m.windows[n+1].Usage
	run := &Run{
		Arm: a.Name, Streams: load.Streams, Run: rep, Interval: load.Interval.Seconds() * 1e3,
		WindowS: m.lasted.Seconds(), OutPath: m.outPath,
		Tokens: front.Tokens, Requests: float64(front.Tokens) / float64(load.OSL), OfferedPerS: load.offered(),
		Completed: m.seen.InWindow, CompletedAll: m.seen.Completed, TokensAll: m.seen.Tokens, ErrorsAll: m.seen.Errors,
		Wrong: m.seen.Wrong, Notes: m.seen.Notes,
		ClientLate: m.seen.LateP99, TTFT: report.NewDist(m.seen.TTFT), ITL: report.NewDist(m.seen.ITL),
	}
	run.RequestsPerS = run.Requests / run.WindowS
	host := front
	run.Frontend, run.Client = run.side(front, m.totals[n].Totals.RSSPeak), run.side(client, 0)
	run.TotalMS = run.Frontend.CPUMS
	if front.RSS > 0 && front.RSSIdle > 0 {
		run.Frontend.RSSPerOpen = float64(front.RSS-front.RSSIdle) / float64(load.Streams)
	}
	if n > 0 {
		var peak int64
		host = usage{}
		for i, w := range m.windows[:n] {
			host, peak = host.add(*w.Usage), max(peak, m.totals[i].Totals.RSSPeak)
		}
		side := run.side(host, peak)
		run.Worker = &side
		run.TotalMS += side.CPUMS
	}
	if passes := host.Passes + host.Missed; passes > 0 {
		run.MissedShare = report.Ptr(float64(host.Missed) / float64(passes))
	}
	if len(m.windows) > n+2 { // its own tokens count: it has no client that is late
		u := *m.windows[n+2].Usage
		alone := Side{TokenUS: u.cpuMS() * 1e3 / float64(max(u.Tokens, 1))}
		alone.CPUMS = alone.TokenUS * float64(load.OSL) / 1e3
		alone.SystemMS = alone.CPUMS * float64(u.SystemNS) / float64(max(u.UserNS+u.SystemNS, 1))
		run.Engines = &alone
	}
	run.mark(m, *m.windows[n+1].Usage)
	run.Invalid = run.check(a, m)
	return run
}

// outPathMS is what the frontend uses for the HTTP side alone, in process.
func (r *Run) outPathMS() float64 {
	if r.Engines == nil {
		return r.Frontend.CPUMS
	}
	return r.Frontend.CPUMS - r.Engines.CPUMS
}

func (r *Run) side(u usage, peak int64) Side {
	s := Side{RSSPeak: peak}
	if r.Requests > 0 {
		s.CPUMS, s.SystemMS = u.cpuMS()/r.Requests, float64(u.SystemNS)/1e6/r.Requests
		s.TokenUS = u.cpuMS() * 1e3 / float64(r.Tokens)
	}
	return s
}

func (r *Run) mark(m measured, client usage) {
	if r.RequestsPerS < 0.95*r.OfferedPerS {
		r.Marks = append(r.Marks, planebench.MarkBelowOffered)
	}
	if m.busyKnown {
		r.HostBusy = &m.busy
		if m.leastBusy > 0.9 {
			r.Marks = append(r.Marks, planebench.MarkMachineLimited)
		}
	}
	const late, busy = 5, 0.9 // the limits of cmd/loadgen
	used := client.cpuMS() / 1e3 / r.WindowS
	if m.seen.LateP99 != nil && *m.seen.LateP99 > late || used > busy*float64(m.seen.Loops) {
		r.Marks = append(r.Marks, MarkClientLimited)
	}
}

// check says why a run proves nothing: every token that an engine made must have been taken by the frontend and read by
// the client.
func (r *Run) check(a Arm, m measured) string {
	n := len(m.totals) - 1
	front := m.totals[n].Totals
	made := front.Made
	for _, w := range m.totals[:n] {
		made += w.Totals.Made
	}
	switch {
	case r.Tokens == 0:
		return "no token came in the window"
	case m.seen.Unaudited > 0:
		return fmt.Sprintf("the text of %d responses was not verified", m.seen.Unaudited)
	case r.ErrorsAll == 0 && (made != front.Tokens || made != m.seen.Tokens):
		return fmt.Sprintf("tokens are missing: the engines made %d, the frontend took %d, the client read %d", made,
			front.Tokens, m.seen.Tokens)
	case r.ErrorsAll == 0 && front.Open > 0:
		return fmt.Sprintf("the frontend still serves %d responses that the client has seen end", front.Open)
	}
	for plane, records := range front.Planes {
		switch {
		case plane != a.Plane && records > 0:
			return fmt.Sprintf("%d records came over plane %s", records, plane)
		case plane == a.Plane && r.ErrorsAll == 0 && records != made:
			return fmt.Sprintf("no proof of transit: plane %s counted %d records of %d", plane, records, made)
		}
	}
	return ""
}

// Verdict is nil when all tokens of all runs were right and no response failed.
func (r *Report) Verdict() error {
	var problems []string
	for _, run := range r.Runs {
		name := fmt.Sprintf("%s at %d open responses, run %d", run.Arm, run.Streams, run.Run)
		if run.Wrong > 0 {
			problems = append(problems, fmt.Sprintf("%s: %d wrong tokens: %s", name, run.Wrong,
				strings.Join(run.Notes, "; ")))
		}
		if run.Invalid != "" {
			problems = append(problems, name+": "+run.Invalid)
		}
		if run.ErrorsAll > 0 {
			problems = append(problems, fmt.Sprintf("%s: %d of %d responses failed: %s", name, run.ErrorsAll,
				run.ErrorsAll+run.CompletedAll, strings.Join(run.Notes, "; ")))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &planebench.WrongError{Problems: problems}
}
