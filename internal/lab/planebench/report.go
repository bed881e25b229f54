package planebench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// Schema is the version of Report.
const Schema = "laneway.plane/1"

// Report is run.json.
type Report struct {
	Schema      string             `json:"schema"`
	ID          string             `json:"id"`
	Label       string             `json:"label,omitempty"`
	StartedAt   string             `json:"started_at"`
	Config      map[string]any     `json:"config"` // every flag in force
	Environment report.Environment `json:"environment"`
	Runs        []*Run             `json:"runs"`             // in the order in which they were run
	Ratios      []Ratio            `json:"ratios,omitempty"` // of more than one arm: each against the first
}

// Run is one run of one arm. Figures are of the window unless they say otherwise.
type Run struct {
	Plane    string  `json:"plane"`
	Delivery string  `json:"delivery"`
	Baseline string  `json:"baseline,omitempty"`  // the bare plane that was run instead of ours
	Gap      string  `json:"batch_gap,omitempty"` // where several were run
	Peer     bool    `json:"peer,omitempty"`      // Plane is the name of a peer
	Run      int     `json:"run"`                 // 1 = first of this arm
	WindowS  float64 `json:"window_s"`

	Requests     float64 `json:"requests"` // records taken / records per response
	Completed    uint64  `json:"completed"`
	Records      uint64  `json:"records"`
	RequestsPerS float64 `json:"requests_per_s"`
	// OfferedPerS is what the engines would serve at the concurrency if every response took OSL passes; absent where
	// passes are not paced.
	OfferedPerS *float64 `json:"offered_per_s,omitempty"`

	CompletedAll uint64   `json:"completed_all"` // of the whole run
	ErrorsAll    int      `json:"errors_all"`
	Wrong        int      `json:"wrong_records"`     // of the whole run
	Invalid      string   `json:"invalid,omitempty"` // why the run proves nothing
	Notes        []string `json:"notes,omitempty"`   // the first errors and wrong records
	Marks        []string `json:"marks,omitempty"`   // what makes its figures doubtful: below offered, machine-limited
	// HostBusy is the mean share of all cores that was busy, whoever used them.
	HostBusy *float64 `json:"host_busy,omitempty"`

	TTFT       *report.Dist `json:"ttft_ms,omitempty"`
	Censored   int          `json:"ttft_censored"` // opened in the window, no record by its end
	ITL        *report.Dist `json:"itl_ms,omitempty"`
	Delay      *report.Dist `json:"delivery_delay_ms,omitempty"`
	FirstDelay *report.Dist `json:"first_delivery_delay_ms,omitempty"`

	Frontend Side    `json:"frontend"`
	Worker   Side    `json:"worker"`
	Broker   *Side   `json:"broker,omitempty"`   // of a peer that has one
	TotalMS  float64 `json:"cpu_ms_per_request"` // of all processes
	// LateShare is the share of the passes that came late by more than an interval; absent where passes are not paced.
	LateShare *float64 `json:"late_share,omitempty"`
	// Sockets are the plane's, with the buffers asked for and granted (the kernel doubles what was asked).
	Sockets []report.Socket `json:"sockets"`
}

// Side is all processes of one role.
type Side struct {
	CPUMS         float64   `json:"cpu_ms_per_request"`
	SystemMS      float64   `json:"system_ms_per_request"` // of it
	SwitchesPerS  float64   `json:"context_switches_per_s"`
	Mallocs       float64   `json:"mallocs_per_request"`
	AllocBytes    float64   `json:"alloc_bytes_per_request"`
	Processes     []Process `json:"processes"`
	*PlaneFigures           // nil of a peer: it has no such counters
}

// PlaneFigures are what a plane of ours, or a baseline, counts itself.
type PlaneFigures struct {
	RecordsPerWrite float64            `json:"records_per_write,omitempty"`
	RecordsPerRead  float64            `json:"records_per_read,omitempty"`
	ReadsPerS       float64            `json:"reads_per_s"`
	WritesPerS      float64            `json:"writes_per_s"`
	WritesByPerS    map[string]float64 `json:"writes_by_reason_per_s"`
	WakesPerS       float64            `json:"wakes_per_s"` // consumers woken, pull
	SinkCallsPerS   float64            `json:"sink_calls_per_s"`
	SlowSinkCalls   uint64             `json:"slow_sink_calls"`
	PlaneBytes      float64            `json:"plane_bytes_per_request"`
	WindowStalls    uint64             `json:"window_stalls"`
	ForgottenFlush  uint64             `json:"forgotten_flushes"`
	Takeovers       uint64             `json:"takeovers"`
	ResentBytes     uint64             `json:"resent_bytes"`
	Wire            WireFigures        `json:"wire"`
}

// WireFigures are what the side's transports have counted in the window. Datagrams and drops are there on plane quic.
type WireFigures struct {
	DatagramsIn       uint64  `json:"datagrams_in"` // one by one, also where offload joined them
	DatagramsOut      uint64  `json:"datagrams_out"`
	DatagramsPerToken float64 `json:"datagrams_per_token"` // in / records
	RecvCallsPerMiB   float64 `json:"recv_calls_per_mib"`  // system calls (quic) or reads of lanes (tcp, tls) for a MiB of the plane
	SendCallsPerMiB   float64 `json:"send_calls_per_mib"`
	SocketDrops       uint64  `json:"socket_drops"`  // by the kernel
	LibraryDrops      uint64  `json:"library_drops"` // inside quic-go
	PacketsLost       uint64  `json:"packets_lost"`  // as this side saw it as the sender
}

// Process is one process of a side.
type Process struct {
	CPUS         float64 `json:"cpu_s"`
	RSSPeakBytes int64   `json:"rss_peak_bytes,omitempty"`
	GCs          uint32  `json:"gcs"`
}

// Marks of runs. A run with one is left out of the ratios: a plane that is behind merges more, so it looks cheaper.
const (
	MarkBelowOffered   = "below offered"   // under 95% of the offered rate
	MarkMachineLimited = "machine-limited" // every core was over 90% busy
)

// Ratio compares an arm with the first one, or a baseline with ours over the same plane and delivery, or what
// Config.Compare names: in each repetition the one's figure / the other's, of CPU per response.
type Ratio struct {
	Arm     string `json:"arm"`
	Base    string `json:"base"`
	LeftOut int    `json:"left_out,omitempty"` // pairs in which a run is marked
	// Behind are pairs that count although Arm, a peer, missed the offered rate while Base held it. Who is behind
	// merges more, so Arm's figure is too low.
	Behind   int               `json:"behind,omitempty"`
	Frontend benchtable.Spread `json:"frontend"`
	Worker   benchtable.Spread `json:"worker"`
	Total    benchtable.Spread `json:"total"`
	// TTFTP99 is the difference of the 99th percentiles of TTFT, arm - base, in ms.
	TTFTP99 benchtable.Spread `json:"ttft_p99_ms_more"`
}

func newReport(cfg Config) *Report {
	now := time.Now()
	return &Report{Schema: Schema, ID: report.Name("plane", now), Label: cfg.Label, StartedAt: report.Stamp(now),
		Config: cfg.Flags, Environment: Environment()}
}

// WriteReport writes a report as run.json into dir, which must not hold one yet, and its tables, where it has some,
// beside it.
func WriteReport(dir string, report any) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--artifact-dir: %w", err)
	}
	b, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "run.json"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("--artifact-dir %s: %w", dir, err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Close())
	if r, ok := report.(interface{ Shown() []benchtable.Table }); ok && err == nil {
		err = benchtable.Write(dir, r.Shown()...)
	}
	return err
}

// hostBusy is how busy the machine was in the window.
type hostBusy struct {
	mean, least float64
	ok          bool
}

// summarize makes a Run of what the processes have said.
func summarize(cfg Config, a arm, rep int, lasted time.Duration, host hostBusy, workers, fronts, workerTotals,
	frontTotals []message) *Run {
	run := &Run{Plane: a.plane, Delivery: a.delivery, Baseline: a.baseline, Gap: a.gap, Peer: a.peer, Run: rep,
		WindowS: lasted.Seconds()}
	delay, first := make(Counts), make(Counts)
	var ttft, itl []float64
	var front, worker Usage
	for _, m := range fronts {
		front = front.add(*m.Usage)
		ttft, itl = append(ttft, m.Consumer.TTFT...), append(itl, m.Consumer.ITL...)
		delay.addAll(m.Consumer.Delay)
		first.addAll(m.Consumer.FirstDelay)
		run.Censored += m.Consumer.Censored
	}
	for _, m := range workers {
		worker = worker.add(*m.Usage)
	}
	for _, m := range slices.Concat(workers, fronts) {
		run.Sockets = append(run.Sockets, m.Sockets...)
	}
	run.Records, run.Completed = front.Taken, front.Completed
	run.Requests = float64(front.Taken) / float64(cfg.Load.OSL)
	run.RequestsPerS = run.Requests / run.WindowS
	if offered := cfg.Load.offered(); offered > 0 {
		run.OfferedPerS = &offered
		if passes := worker.Passes + worker.Late; passes > 0 {
			share := float64(worker.Late) / float64(passes)
			run.LateShare = &share
		}
	}
	if run.OfferedPerS != nil && run.RequestsPerS < 0.95**run.OfferedPerS {
		run.Marks = append(run.Marks, MarkBelowOffered)
	}
	if host.ok {
		run.HostBusy = &host.mean
		if host.least > 0.9 {
			run.Marks = append(run.Marks, MarkMachineLimited)
		}
	}
	run.TTFT, run.ITL, run.Delay, run.FirstDelay = report.NewDist(ttft), report.NewDist(itl), delay.dist(), first.dist()

	var taken, in, out uint64
	for _, m := range frontTotals {
		t := m.Totals
		run.CompletedAll += t.Completed
		run.ErrorsAll += t.Errors
		run.Wrong += t.Wrong
		run.Notes = append(run.Notes, t.Notes...)
		taken, in = taken+t.Taken, in+t.Records
		for plane := range t.Planes {
			if plane != a.plane {
				run.Invalid = fmt.Sprintf("lanes of plane %s were open", plane)
			}
		}
	}
	for _, m := range workerTotals {
		out += m.Totals.Records
	}
	switch {
	case run.Records == 0:
		run.Invalid = "no record came in the window"
	case run.ErrorsAll == 0 && (taken != in || in != out):
		run.Invalid = fmt.Sprintf("no proof of transit: %d records were taken, the frontends' plane counted %d, the "+
			"workers' %d", taken, in, out)
	}
	run.Frontend = side(front, run, fronts, frontTotals, front.Records, front.Reads)
	run.Worker = side(worker, run, workers, workerTotals, 0, 0)
	if worker.Writes > 0 && !run.Peer {
		run.Worker.RecordsPerWrite = float64(worker.Records) / float64(worker.Writes)
	}
	run.TotalMS = run.Frontend.CPUMS + run.Worker.CPUMS
	return run
}

// Clamped counts the socket buffers of which the kernel granted less than was asked, and names the first.
func (r *Run) Clamped() (n int, first string) {
	for _, s := range r.Sockets {
		for kind, b := range map[string][2]*int64{"receive": {s.RecvAsked, s.RecvGranted},
			"send": {s.SendAsked, s.SendGranted}} {
			if b[0] == nil || *b[1] >= 2**b[0] {
				continue
			}
			if n++; n == 1 {
				first = fmt.Sprintf("%s, port %d: %s buffer of %d bytes asked, %d granted", s.Process, s.Port, kind,
					*b[0], *b[1])
			}
		}
	}
	return n, first
}

func side(u Usage, run *Run, windows, totals []message, records, reads uint64) Side {
	perRequest := func(v float64) float64 {
		if run.Requests == 0 {
			return 0
		}
		return v / run.Requests
	}
	s := Side{
		CPUMS: perRequest(float64(u.UserNS+u.SystemNS) / 1e6), SystemMS: perRequest(float64(u.SystemNS) / 1e6),
		SwitchesPerS: float64(u.Switches) / run.WindowS, Mallocs: perRequest(float64(u.Mallocs)),
		AllocBytes: perRequest(float64(u.Alloc)),
	}
	if !run.Peer {
		s.PlaneFigures = planeFigures(u, run, perRequest(float64(u.Bytes)), records, reads)
	}
	for i, m := range windows {
		s.Processes = append(s.Processes, Process{CPUS: float64(m.Usage.UserNS+m.Usage.SystemNS) / 1e9,
			GCs: m.Usage.GCs, RSSPeakBytes: totals[i].Totals.RSSPeak})
	}
	return s
}

// addBroker adds what ran between the two sides.
func (r *Run) addBroker(windows, totals []message) {
	s := side(*windows[0].Usage, r, windows, totals, 0, 0)
	r.Broker = &s
	r.TotalMS += s.CPUMS
}

func planeFigures(u Usage, run *Run, perRequest float64, records, reads uint64) *PlaneFigures {
	perS := func(v uint64) float64 { return float64(v) / run.WindowS }
	p := &PlaneFigures{
		ReadsPerS: perS(u.Reads), WritesPerS: perS(u.Writes), WakesPerS: perS(u.Wakes),
		SinkCallsPerS: perS(u.SinkCalls),
		SlowSinkCalls: u.SinkSlow, WritesByPerS: make(map[string]float64), PlaneBytes: perRequest,
		WindowStalls: u.Stalls, ForgottenFlush: u.Forgotten, Takeovers: u.Takeovers, ResentBytes: u.Resent,
	}
	p.Wire = WireFigures{
		DatagramsIn: u.Wire.DatagramsIn, DatagramsOut: u.Wire.DatagramsOut,
		SocketDrops: u.Wire.SocketDrops, LibraryDrops: u.Wire.LibraryDrops, PacketsLost: u.Wire.PacketsLost,
	}
	if u.Records > 0 {
		p.Wire.DatagramsPerToken = float64(u.Wire.DatagramsIn) / float64(u.Records)
	}
	if mib := float64(u.Bytes) / (1 << 20); mib > 0 {
		p.Wire.RecvCallsPerMiB, p.Wire.SendCallsPerMiB = float64(u.Wire.RecvCalls)/mib, float64(u.Wire.SendCalls)/mib
	}
	for reason, n := range u.WritesBy {
		p.WritesByPerS[reason] = perS(n)
	}
	if reads > 0 {
		p.RecordsPerRead = float64(records) / float64(reads)
	}
	return p
}

// ratios compares pairs of arms, repetition by repetition.
func ratios(pairs [][2]arm, runs []*Run) []Ratio {
	find := func(a arm, rep int) *Run {
		for _, r := range runs {
			if r.arm() == a && r.Run == rep {
				return r
			}
		}
		return nil
	}
	var out []Ratio
	for _, pair := range pairs {
		a, against := pair[0], pair[1]
		var front, worker, total, ttft []float64
		left, behind := 0, 0
		for rep := 1; ; rep++ {
			one, base := find(a, rep), find(against, rep)
			if one == nil || base == nil {
				break
			}
			switch {
			case len(one.Marks)+len(base.Marks) == 0:
			case a.peer && len(base.Marks) == 0 && slices.Contains(one.Marks, MarkBelowOffered):
				behind++
			default:
				left++
				continue
			}
			front = append(front, one.Frontend.CPUMS/base.Frontend.CPUMS)
			worker = append(worker, one.Worker.CPUMS/base.Worker.CPUMS)
			total = append(total, one.TotalMS/base.TotalMS)
			if one.TTFT != nil && base.TTFT != nil {
				ttft = append(ttft, one.TTFT.P99-base.TTFT.P99)
			}
		}
		out = append(out, Ratio{Arm: a.String(), Base: against.String(), LeftOut: left, Behind: behind,
			Frontend: benchtable.SpreadOf(front), Worker: benchtable.SpreadOf(worker),
			Total: benchtable.SpreadOf(total), TTFTP99: benchtable.SpreadOf(ttft)})
	}
	return out
}
