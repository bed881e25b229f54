package loadgen

import (
	"math"
	"math/rand/v2"
	"sync"

	"github.com/laneway-ai/laneway/internal/report"
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

// plan hands out the requests of a run: warm-up first, then the measured ones, without a pause between the two. All methods may be called from any
// goroutine.
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

	firstAt  int64 // when the first measured request was handed out, Absent before
	lastAt   int64 // when the latest one was
	first    chan struct{}
	allTaken int64 // when load stopped being held: the last measured request was handed out, or the duration passed; Absent before
}

func newPlan(cfg Config) *plan {
	p := &plan{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x1a2e3a7)), firstAt: report.Absent, lastAt: report.Absent, allTaken: report.Absent,
		first: make(chan struct{}),
	}
	p.lengths = warmupLengths(cfg.Warmup, cfg.OSL, p.rng)
	return p
}

// warmupLengths spreads n output lengths evenly over 1..osl and shuffles them, so that neighbours, which a router sends to different
// workers, do not rise together.
func warmupLengths(n, osl int, rng *rand.Rand) []int {
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = 1 + int(int64(i)*int64(osl)/int64(n))
	}
	rng.Shuffle(n, func(i, k int) { lengths[i], lengths[k] = lengths[k], lengths[i] })
	return lengths
}

// take returns the next job. Of a fixed schedule it hands out arrivals that are due, or with reserve the next one though it may lie ahead (the caller
// waits for its time). With verdictWait at is when to ask again.
func (p *plan) take(now int64, reserve bool) (j job, at int64, v verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over(now) {
		return job{}, 0, verdictStop
	}
	when := now
	if p.cfg.Rate > 0 {
		if when = p.arrival; when > now && !reserve {
			return job{}, when, verdictWait
		}
	}
	j = job{seq: p.seq, osl: p.cfg.OSL, phase: report.PhaseMeasured, intended: when}
	if p.warm < len(p.lengths) {
		j.phase, j.osl = report.PhaseWarmup, p.lengths[p.warm]
		p.warm++
	} else {
		if p.cfg.Duration > 0 && p.firstAt != report.Absent && when >= p.firstAt+int64(p.cfg.Duration) { // an arrival past the end
			p.stopped, p.allTaken = true, p.firstAt+int64(p.cfg.Duration)
			return job{}, 0, verdictStop
		}
		p.measured++
		p.lastAt = max(p.lastAt, when)
		if p.firstAt == report.Absent {
			p.firstAt = when
			close(p.first)
		}
		if p.measured == p.cfg.Requests {
			p.stopped, p.allTaken = true, when
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
	if end := p.firstAt + int64(p.cfg.Duration); p.cfg.Duration > 0 && p.firstAt != report.Absent && now >= end && p.cfg.Rate == 0 {
		p.stopped, p.allTaken = true, end
		return true
	}
	return false
}

// advance steps to the next arrival. Constant ones come from their number, so that errors do not add up.
func (p *plan) advance() {
	if p.cfg.Rate <= 0 {
		return
	}
	p.arrivals++
	if p.cfg.Arrival == Poisson {
		p.arrival += int64(p.rng.ExpFloat64() / p.cfg.Rate * 1e9)
		return
	}
	p.arrival = int64(math.Round(float64(p.arrivals) / p.cfg.Rate * 1e9))
}

// stop ends the handing out; an interrupt calls it.
func (p *plan) stop(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped, p.allTaken = true, now
	}
}

// rampStart is when the slot with this number starts first.
func (p *plan) rampStart(slot int) int64 {
	return int64(p.cfg.Ramp) * int64(slot) / int64(p.cfg.Concurrency)
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
