package loadgen

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// Status is where a run stands.
type Status struct {
	Phase        string // report.PhaseWarmup until the first measured request starts
	Done, Total  int    // measured requests ended, and to be made (0 = the duration ends the run)
	WarmupDone   int
	WarmupTotal  int
	Open         int
	Errors       int     // of both phases
	RequestsPerS float64 // ended in the last few seconds
	TTFTp50      time.Duration
	Elapsed      time.Duration
	// Left is an estimate, -1 when there is none yet.
	Left time.Duration
}

// String is the status line.
func (s Status) String() string {
	var b strings.Builder
	if s.Phase == report.PhaseWarmup {
		fmt.Fprintf(&b, "warm-up %d/%d", s.WarmupDone, s.WarmupTotal)
	} else if s.Total > 0 {
		fmt.Fprintf(&b, "%d/%d done", s.Done, s.Total)
	} else {
		fmt.Fprintf(&b, "%d done", s.Done)
	}
	fmt.Fprintf(&b, ", %d open, %d errors, %.1f requests/s", s.Open, s.Errors, s.RequestsPerS)
	if s.TTFTp50 > 0 {
		fmt.Fprintf(&b, ", TTFT p50 %s", s.TTFTp50.Round(100*time.Microsecond))
	}
	fmt.Fprintf(&b, ", %s", s.Elapsed.Round(time.Second))
	if s.Left >= 0 {
		fmt.Fprintf(&b, ", about %s left", s.Left.Round(time.Second))
	}
	return b.String()
}

// collector takes the rows of a run as they come: it writes them, keeps them for the summary, and counts for the status
// line.
type collector struct {
	dir    *report.Dir // nil without files
	each   func(report.Row)
	log    *slog.Logger
	rows   []report.Row
	failed report.ErrorKinds

	warm, done, errors atomic.Int64
	mu                 sync.Mutex
	ttft               *hdrhistogram.Histogram
}

func newCollector(dir *report.Dir, log *slog.Logger) *collector {
	return &collector{dir: dir, log: log, ttft: report.NewGaps()}
}

// loop ends when rows is closed.
func (c *collector) loop(rows <-chan ending) {
	flush := time.NewTicker(time.Second)
	defer flush.Stop()
	for {
		select {
		case o, ok := <-rows:
			if !ok {
				return
			}
			c.add(o.row, o.said)
		case <-flush.C:
			if c.dir != nil {
				c.dir.Flush()
			}
		}
	}
}

func (c *collector) add(r report.Row, said string) {
	if c.dir != nil {
		c.dir.Add(&r)
	}
	if c.each != nil {
		c.each(r)
	}
	c.rows = append(c.rows, r)
	if !r.OK() && r.Ended != report.EndCanceled {
		c.errors.Add(1)
		if k, first := c.failed.Add(&r, said); first {
			c.log.Warn("request failed; more of its kind are counted, not logged", "request", r.ID, "end", k.End,
				"status", k.Status, "type", k.Type, "message", k.Message,
				"worker", r.Worker)
		}
	}
	if r.Phase == report.PhaseWarmup {
		c.warm.Add(1)
		return
	}
	c.done.Add(1)
	if v, ok := r.TTFT(); ok && r.OK() {
		c.mu.Lock()
		report.RecordGap(c.ttft, v)
		c.mu.Unlock()
	}
}

// progress calls the user's function about once a second until ctx ends.
func progress(ctx context.Context, e *engine, c *collector) {
	const window = 5 // seconds that the rate looks back
	var history []int64
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		st := e.plan.state()
		s := Status{
			Phase: report.PhaseMeasured, Done: int(c.done.Load()), Total: e.cfg.Requests,
			WarmupDone: int(c.warm.Load()), WarmupTotal: e.cfg.Warmup,
			Open: int(e.open.Load()), Errors: int(c.errors.Load()), Elapsed: time.Duration(e.now()), Left: -1,
		}
		if st.firstAt == report.Absent {
			s.Phase = report.PhaseWarmup
		}
		history = append(history, c.done.Load()+c.warm.Load())
		if n := len(history); n > 1 {
			from := max(0, n-1-window)
			s.RequestsPerS = float64(history[n-1]-history[from]) / float64(n-1-from)
		}
		c.mu.Lock()
		if c.ttft.TotalCount() > 0 {
			s.TTFTp50 = time.Duration(c.ttft.ValueAtPercentile(50))
		}
		c.mu.Unlock()
		s.Left = left(e.cfg, st, s)
		e.cfg.Progress(s)
	}
}

// left estimates from the rate of the last seconds and, when the duration ends the run, from that.
func left(cfg Config, st planState, s Status) time.Duration {
	est := time.Duration(-1)
	if cfg.Requests > 0 && s.RequestsPerS > 0 {
		n := cfg.Requests - s.Done + cfg.Warmup - s.WarmupDone
		est = time.Duration(float64(n) / s.RequestsPerS * float64(time.Second))
	}
	if cfg.Duration > 0 && st.firstAt != report.Absent {
		end := max(time.Duration(report.After(st.firstAt, int64(cfg.Duration)))-s.Elapsed, 0)
		if est < 0 || end < est {
			est = end
		}
	}
	return est
}
