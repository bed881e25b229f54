package loadgen

import (
	"math"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// TestFarAwayIsNotNow: what is further away than a clock counts is never, and not at once.
func TestFarAwayIsNotNow(t *testing.T) {
	const now = int64(time.Hour)
	for _, arrival := range []string{Constant, Poisson} {
		for _, rate := range []float64{1e-11, 1e-300, math.SmallestNonzeroFloat64} {
			p := newPlan(Config{Rate: rate, Arrival: arrival, Requests: 3, OSL: 1}.withDefaults())
			if _, _, v := p.take(0, false); v != verdictGo {
				t.Fatalf("%s %v: the first request: %v", arrival, rate, v)
			}
			for range 3 { // it is asked for again and again
				if _, at, v := p.take(now, false); v != verdictWait || at < now+int64(24*time.Hour) {
					t.Errorf("%s %v: the second request: %v at %v", arrival, rate, v, time.Duration(at))
				}
			}
			for range 2 { // a client that takes requests ahead of their time
				if j, _, v := p.take(now, true); v != verdictGo || j.intended < now+int64(24*time.Hour) {
					t.Errorf("%s %v: a request taken ahead is for %v", arrival, rate, time.Duration(j.intended))
				}
			}
		}
	}
	p := newPlan(Config{Duration: math.MaxInt64, OSL: 1}.withDefaults())
	for _, at := range []int64{5, 10, now} {
		if _, _, v := p.take(at, false); v != verdictGo {
			t.Errorf("a run of 292 years is over after %v", time.Duration(at))
		}
	}
	if l := left(p.cfg, p.state(), Status{Elapsed: time.Hour}); l < 24*time.Hour {
		t.Errorf("%v are left of it", l)
	}
	ramp := newPlan(Config{Ramp: 1000 * time.Hour, Concurrency: 1_000_000, OSL: 1}.withDefaults())
	for slot, before := 0, int64(-1); slot < 1_000_000; slot += 100_000 {
		at := ramp.rampStart(slot)
		if at <= before {
			t.Errorf("slot %d starts at %v, one before it at %v", slot, time.Duration(at), time.Duration(before))
		}
		before = at
	}
	if at := newPlan(Config{Ramp: 10 * time.Second, Concurrency: 4,
		OSL: 1}.withDefaults()).rampStart(1); at != int64(2500*time.Millisecond) {
		t.Errorf("the second of 4 slots starts at %v of 10s", time.Duration(at))
	}
	e := &engine{plan: p, cfg: Config{SteadyAfter: math.MaxInt64}}
	if e.steadyAt(now) {
		t.Error("the steady window has begun 292 years early")
	}
	rows := []report.Row{{Phase: report.PhaseMeasured, Sent: 5, End: 6}, {Phase: report.PhaseMeasured, Sent: now,
		End: now}}
	if s, ok := report.SteadySpan(rows, math.MaxInt64, 0, report.Absent); ok {
		t.Errorf("steady window %+v", s)
	}
	for _, rate := range []float64{math.Inf(1), math.NaN(), -1} {
		if (Config{URL: redact.New("http://h"), Requests: 1, Rate: rate}).Validate() == nil {
			t.Errorf("a rate of %v is taken", rate)
		}
	}
}

// TestEndDoesNotWait: a run is over when its duration is, or when it is told to stop, though slots still wait for the
// first request of a long ramp or for an arrival.
func TestEndDoesNotWait(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		for name, cfg := range map[string]Config{
			"ramp":    {Ramp: time.Hour, Concurrency: 4, Duration: 100 * time.Millisecond},
			"arrival": {Rate: .001, Concurrency: 4, Duration: 100 * time.Millisecond},
			"poisson": {Rate: 1e-6, Arrival: Poisson, Concurrency: 4, Duration: 100 * time.Millisecond},
		} {
			cfg.Client, cfg.OSL, cfg.ISL = client, 2, 1
			s := newServer(t, normal(0, 0))
			run, rows := load(t, s, cfg)
			if len(rows) == 0 || run.Raw.Errors != 0 || run.Raw.EndS > 1800 || name != "ramp" && len(rows) != 1 {
				t.Errorf("%s: %d rows, %+v", name, len(rows), run.Raw)
			}
		}
	})
}

// TestSlowRateSendsOne: the clients too wait for what is far away.
func TestSlowRateSendsOne(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		stop := make(chan struct{})
		s := newServer(t, normal(0, 0))
		run, rows := load(t, s, Config{Client: client, Rate: 1e-11, Concurrency: 8, OSL: 2, ISL: 1, Stop: stop,
			Timeout: math.MaxInt64, Each: func(report.Row) {
				// a second one would come meanwhile, and close it again
				time.AfterFunc(50*time.Millisecond, func() { close(stop) })
			}})
		if len(rows) != 1 || run.Raw.Requests != 1 || s.n.Load() != 1 {
			t.Errorf("%d rows, the server saw %d requests", len(rows), s.n.Load())
		}
	})
}
