package httpbench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/laneway-ai/laneway/internal/lab/loadgen"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

const (
	// minITL is the shortest response whose mean inter-token latency is worth a sample.
	minITL = 8
	// maxNotes bounds what is kept of what went wrong.
	maxNotes = 5
	// requestTimeout bounds one request; a run is shorter.
	requestTimeout = 10 * time.Minute
)

// clientRole is the process that holds the responses: a closed loop of cmd/loadgen.
type clientRole struct {
	*child
	ctx    context.Context
	cancel context.CancelFunc
	stop   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup

	mu    sync.Mutex
	times []time.Time             // of opBegin and opEnd
	late  *hdrhistogram.Histogram // of the window: how late the client's loops were
}

func (r *clientRole) start(ctx context.Context) (message, error) {
	if r.cfg.URL == "" {
		return message{}, errors.New("the client was not told where the frontend is")
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.stop, r.late = make(chan struct{}), report.NewGaps()
	return message{}, nil
}

func (r *clientRole) load() error {
	l := r.cfg.Load
	cfg := loadgen.Config{
		URL: redact.New(r.cfg.URL), Model: model, Concurrency: l.Streams, ISL: l.ISL, OSL: l.OSL,
		Warmup:  loadgen.DefaultWarmup,
		Timeout: requestTimeout, Audit: loadgen.AuditOn, Stop: r.stop, Log: r.log,
		Loops: loops(),
	}
	var rows []report.Row
	cfg.Late = func(late time.Duration) { // the whole run has the burst of the start in it, when nothing is measured
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.times) == 1 {
			report.RecordGap(r.late, int64(late))
		}
	}
	cfg.Each = func(row report.Row) { rows = append(rows, row) }
	r.wg.Go(func() { // ends with its requests, or with cancel
		run, err := loadgen.Run(r.ctx, cfg)
		if err != nil {
			_ = r.out.Send(message{Op: opFailed, Error: err.Error()})
			return
		}
		s, err := r.look(run, rows)
		if err != nil {
			_ = r.out.Send(message{Op: opFailed, Error: err.Error()})
			return
		}
		_ = r.out.Send(message{Op: opStopped, Seen: s})
	})
	return nil
}

// look sums up what the client saw.
func (r *clientRole) look(run *report.Run, rows []report.Row) (*seen, error) {
	t0, err := time.Parse(time.RFC3339Nano, run.StartedAt)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	times, late := r.times, report.DistOfHist(r.late)
	r.mu.Unlock()
	within := func(at int64) bool {
		when := t0.Add(time.Duration(at))
		return len(times) == 2 && !when.Before(times[0]) && when.Before(times[1])
	}
	s := &seen{Loops: loops(), TTFT: []float64{}, ITL: []float64{}}
	if late != nil {
		s.LateP99 = &late.P99
	}
	note := func(format string, a ...any) {
		if len(s.Notes) < maxNotes {
			s.Notes = append(s.Notes, fmt.Sprintf(format, a...))
		}
	}
	for i := range rows {
		row := &rows[i]
		if row.Wrong > 0 {
			s.Wrong += row.Wrong
			note("response %s of %s has %d wrong tokens", row.ID, row.Worker, row.Wrong)
		}
		if !row.OK() {
			s.Errors++
			note("response %s of %s ended as %s (%s)", row.ID, row.Worker, row.Ended, row.ErrorType)
			continue
		}
		if row.Wrong == report.Absent {
			s.Unaudited++
		}
		s.Completed++
		s.Tokens += uint64(max(row.OutputTokens, 0))
		if ttft, ok := row.TTFT(); ok && within(row.Sent) {
			s.TTFT = append(s.TTFT, float64(ttft))
		}
		if within(row.End) {
			s.InWindow++
			if itl, ok := row.ITL(); ok && row.OutputTokens >= minITL {
				s.ITL = append(s.ITL, itl)
			}
		}
	}
	return s, nil
}

func (r *clientRole) finish() error {
	r.once.Do(func() { close(r.stop) })
	return nil
}

// loops is how many loops the client has: as many as it would choose.
func loops() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// count is called when the window begins and when it ends.
func (r *clientRole) count(*usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = append(r.times, time.Now())
}

func (r *clientRole) totals() (totals, error) { return totals{}, nil }

func (r *clientRole) close() error {
	if r.cancel != nil {
		r.cancel()
	}
	r.wg.Wait()
	return nil
}
