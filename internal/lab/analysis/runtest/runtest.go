// Package runtest writes run directories whose numbers are known, for tests of what reads them.
package runtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// Spec describes a run. The zero value of a field is its default.
type Spec struct {
	ID      string
	Plane   string    // "quic"
	Started time.Time // 2026-01-02 03:04:05 in a zone an hour east of UTC
	// Requests are sent Every apart (400, 10 ms).
	Requests int
	Every    time.Duration
	// First is the time to first token of each worker process; requests go round over them. Default: 8 of 20 ms.
	First []time.Duration
	ITL   time.Duration // 20 ms
	// Tokens of each response (16), and Spread, by which share the times of a run's requests vary around the given ones
	// (0.05).
	Tokens int
	Spread float64
	// CPU is the frontend's, in ms a request (5).
	CPU  float64
	Seed uint64
	// Config is added to run.json's config.
	Config map[string]any
	// Row, when set, may change each row before it is written; Run may change run.json.
	Row func(i int, r *report.Row)
	Run func(*report.Run)
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// steadyAfter is when the steady window begins, after the first request.
const steadyAfter = time.Second

// Write writes the run into dir, which must not hold one.
func Write(dir string, s Spec) error {
	d, err := report.Create(dir)
	if err != nil {
		return err
	}
	rows := s.rows()
	for i := range rows {
		d.Add(&rows[i])
	}
	run := s.run(rows)
	if s.Run != nil {
		s.Run(run)
	}
	return d.Finish(run, report.Series(rows, nil))
}

func (s *Spec) rows() []report.Row {
	n, every, itl, tokens := or(s.Requests, 400), or(s.Every, 10*time.Millisecond), or(s.ITL, 20*time.Millisecond),
		or(s.Tokens, 16)
	first := s.First
	if first == nil {
		for range 8 {
			first = append(first, 20*time.Millisecond)
		}
	}
	rng := rand.New(rand.NewPCG(s.Seed, 7))
	vary := func(v float64) int64 { return int64(v * (1 + or(s.Spread, .05)*(2*rng.Float64()-1))) }
	rows := make([]report.Row, n)
	for i := range rows {
		p := i % len(first)
		sent := int64(i+1) * int64(every)
		at := sent + vary(float64(first[p]))
		last := at + vary(float64(itl)*float64(tokens-1))
		rows[i] = report.Row{
			ID: fmt.Sprintf("%s-%d", s.id(), i), Phase: report.PhaseMeasured, Intended: sent - 1000, Sent: sent,
			First: at, Last: last, End: last + 1000, Status: 200,
			Ended: report.EndComplete, OutputTokens: tokens, Chunks: tokens, Worker: fmt.Sprintf("worker-%d-%d", p,
				i%64), Process: fmt.Sprintf("worker-%d", p), Lane: s.plane() + "/0",
		}
		if s.Row != nil {
			s.Row(i, &rows[i])
		}
	}
	return rows
}

func (s *Spec) id() string    { return or(s.ID, "run") }
func (s *Spec) plane() string { return or(s.Plane, "quic") }

func (s *Spec) run(rows []report.Row) *report.Run {
	at := or(s.Started, time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)))
	run := &report.Run{
		Schema: report.Schema, ID: s.id(), Label: s.id(), StartedAt: report.Stamp(at), Marks: []string{},
		Config: map[string]any{"response_plane": s.plane(), "lanes": 1, "server_endpoints": 4, "workers": 512,
			"worker_processes": 8, "concurrency": 64, "request_count": len(rows),
			"isl": 1024, "osl": 16, "steady_after": "1s", "artifact_dir": s.id()},
		Environment: report.Environment{Revision: "abc", Go: "go1.26", Kernel: "6.1", CPUs: 8,
			RmemMax: report.Ptr(int64(212992)), WmemMax: report.Ptr(int64(212992)),
			TCPCongestionControl: "cubic", Sockets: []report.Socket{{Process: "frontend", Role: "lane", Port: 4001,
				GRO: report.Ptr(true)}}},
		Client: report.Client{ScheduleDelayP99: report.Ptr(.5), Kind: "epoll"},
	}
	for k, v := range s.Config {
		run.Config[k] = v
	}
	var tokens int64
	if span, ok := report.RawSpan(rows); ok {
		run.Raw = s.window(rows, span)
		for i := range rows {
			tokens += int64(max(0, rows[i].OutputTokens))
		}
	}
	if span, ok := report.SteadySpan(rows, steadyAfter, 0, report.Absent); ok {
		run.Steady = s.window(rows, span)
	}
	n := report.Ptr(tokens)
	run.Plane = &report.Plane{Records: n, Reads: n, Writes: n, RecordsPerWrite: report.Ptr(1.0), Wakes: n,
		StreamsEnded: map[string]int64{"complete": int64(len(rows))},
		Takeovers:    report.Ptr(int64(0)), ResentBytes: report.Ptr(int64(0)),
		PlaneRecords: map[string]int64{s.plane(): tokens},
		Lanes:        []report.Lane{{Process: "worker-0", Streams: n, Bytes: n}}}
	if s.plane() == "quic" {
		z := report.Ptr(int64(0))
		run.UDP = &report.UDP{InDatagrams: n, OutDatagrams: n, RcvbufErrors: report.Ptr(int64(7)), SocketDrops: z,
			LibraryDrops: z, PacketsLost: z, DatagramsPerToken: report.Ptr(.08),
			Sockets: []report.UDPSocket{{Port: 4001, Lane: report.Ptr(0), Drops: report.Ptr(int64(5))},
				{Port: 4002, Lane: report.Ptr(1), Drops: report.Ptr(int64(2))}}}
	}
	if loads := report.FindHolders(rows); loads != nil {
		h, ref := report.CountHolders(loads)
		run.Holders, run.HoldersReference = &h, &ref
		for _, l := range loads {
			run.Processes = append(run.Processes, report.Process{Role: "worker", Name: l.Name,
				Requests: report.Ptr(l.Requests), MeanFirstResponse: report.Ptr(l.MeanFirstResponse / 1e6),
				Holder: report.Ptr(l.Holder), CPUSeconds: report.Ptr(1.0), RSSPeak: report.Ptr(int64(20 << 20))})
		}
	}
	run.Processes = append(run.Processes, report.Process{Role: "frontend", Name: "frontend",
		CPUSeconds: report.Ptr(2.0)}, report.Process{Role: "loadgen", Name: "loadgen"})
	return run
}

func (s *Spec) window(rows []report.Row, span report.Span) *report.Window {
	gaps := report.NewGaps()
	report.RecordGap(gaps, int64(or(s.ITL, 20*time.Millisecond)))
	w := report.Summarize(rows, span, gaps, report.SLO{})
	w.FrontendCPU, w.WorkerCPU, w.LoadgenCPU, w.MachineBusy = report.Ptr(or(s.CPU, 5)), report.Ptr(4.0),
		report.Ptr(1.0), report.Ptr(.5)
	return w
}
