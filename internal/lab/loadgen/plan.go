package loadgen

import (
	"math"
	"math/rand/v2"
	"sync"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// job is one request to be sent.
type job struct {
	seq      int
	phase    string
	osl      int
	intended int64 // when it is to be sent
}

// verdict says what a free connection is to do.
type verdict uint8

const (
	verdictGo   verdict = iota // send the job
	verdictWait                // ask again at the time given
	verdictStop                // nothing will be sent any more
)

// plan hands out the requests of a run: warm-up first, then the measured ones, without a pause between the two. All
// methods may be called from any goroutine.
type plan struct {
	cfg     Config
	lengths []int // of the warm-up requests

	mu       sync.Mutex
	rng      *rand.Rand
	seq      int
	warm     int
	measured int
	stopped  bool
	arrival  int64 // next arrival of the fixed schedule
	arrivals int

	firstAt int64 // when the first measured request was handed out, Absent before
	lastAt  int64 // when the latest one was
	first   chan struct{}
	halted  chan struct{} // closed when nothing more is handed out
	asked   chan struct{} // closed when stop was called: what was handed out ahead of its time is not sent either
	// when load stopped being held: the last measured request was handed out, or the duration passed; Absent before
	allTaken int64
}

func newPlan(cfg Config) *plan {
	p := &plan{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x1a2e3a7)), firstAt: report.Absent, lastAt: report.Absent,
		allTaken: report.Absent,
		first:    make(chan struct{}), halted: make(chan struct{}), asked: make(chan struct{}),
	}
	p.lengths = warmupLengths(cfg.Warmup, cfg.OSL, p.rng)
	return p
}

// warmupLengths spreads n output lengths evenly over 1..osl and shuffles them, so that neighbours, which a router sends
// to different workers, do not rise together.
func warmupLengths(n, osl int, rng *rand.Rand) []int {
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = 1 + int(int64(i)*int64(osl)/int64(n))
	}
	rng.Shuffle(n, func(i, k int) { lengths[i], lengths[k] = lengths[k], lengths[i] })
	return lengths
}

// take returns the next job. Of a fixed schedule it hands out arrivals that are due, or with reserve the next one
// though it may lie ahead (the caller waits for its time). With verdictWait at is when to ask again.
func (p *plan) take(now int64, reserve bool) (j job, at int64, v verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over(now) {
		return job{}, 0, verdictStop
	}
	when := now
	if p.cfg.Rate > 0 {
		when = p.arrival
		if end, ends := p.end(); ends && p.warm == len(p.lengths) && when >= end { // known now, however far away it is
			p.halt(end)
			return job{}, 0, verdictStop
		}
		if when > now && !reserve {
			return job{}, when, verdictWait
		}
	}
	j = job{seq: p.seq, osl: p.cfg.OSL, phase: report.PhaseMeasured, intended: when}
	if p.warm < len(p.lengths) {
		j.phase, j.osl = report.PhaseWarmup, p.lengths[p.warm]
		p.warm++
	} else {
		p.measured++
		p.lastAt = max(p.lastAt, when)
		if p.firstAt == report.Absent {
			p.firstAt = when
			close(p.first)
		}
		if p.measured == p.cfg.Requests {
			p.halt(when)
		}
	}
	p.seq++
	p.advance()
	return j, 0, verdictGo
}

// over tells whether nothing is left to send at now.
func (p *plan) over(now int64) bool {
	if p.stopped {
		return true
	}
	if end, ends := p.end(); ends && p.cfg.Rate == 0 && now >= end {
		p.halt(end)
		return true
	}
	return false
}

// end is when the duration is over, false before the first measured request and without a duration.
func (p *plan) end() (at int64, ok bool) {
	if p.cfg.Duration == 0 || p.firstAt == report.Absent {
		return 0, false
	}
	return report.After(p.firstAt, int64(p.cfg.Duration)), true
}

// halt says that nothing more is handed out, and since when load is not held.
func (p *plan) halt(at int64) {
	if !p.stopped {
		p.stopped, p.allTaken = true, at
		close(p.halted)
	}
}

// advance steps to the next arrival. Constant ones come from their number, so that errors do not add up.
func (p *plan) advance() {
	if p.cfg.Rate <= 0 {
		return
	}
	p.arrivals++
	if p.cfg.Arrival == Poisson {
		p.arrival = report.After(p.arrival, nanoseconds(p.rng.ExpFloat64()/p.cfg.Rate))
		return
	}
	p.arrival = nanoseconds(float64(p.arrivals) / p.cfg.Rate)
}

// nanoseconds of so many seconds; what is too far away to be one is never.
func nanoseconds(seconds float64) int64 {
	if ns := math.Round(seconds * 1e9); ns < math.MaxInt64 {
		return int64(ns)
	}
	return math.MaxInt64
}

// stop ends the handing out; an interrupt calls it.
func (p *plan) stop(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halt(now)
	if !closed(p.asked) {
		close(p.asked)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// rampStart is when the slot with this number starts first.
func (p *plan) rampStart(slot int) int64 {
	return nanoseconds(p.cfg.Ramp.Seconds() * float64(slot) / float64(p.cfg.Concurrency))
}

// planState is a snapshot of a plan.
type planState struct {
	warm, measured  int
	firstAt, heldTo int64 // Absent when not yet known
}

func (p *plan) state() planState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return planState{warm: p.warm, measured: p.measured, firstAt: p.firstAt, heldTo: p.allTaken}
}
