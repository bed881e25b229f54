package report

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Span is a stretch of the run's clock in nanoseconds, both ends included.
type Span struct{ Start, End int64 }

func (s Span) seconds() float64 { return float64(s.End-s.Start) / 1e9 }

// RawSpan lasts from the start of the first measured request to the end of the last, false when none started.
func RawSpan(rows []Row) (Span, bool) {
	s, ok := Span{}, false
	for i := range rows {
		r := &rows[i]
		if r.Phase != PhaseMeasured {
			continue
		}
		at := started(r)
		if !ok {
			s, ok = Span{at, at}, true
		}
		s.Start = min(s.Start, at)
		s.End = max(s.End, r.End, at)
	}
	return s, ok
}

// started is when the request was sent; one that never was counts from when it was to be.
func started(r *Row) int64 {
	if r.Sent != Absent {
		return r.Sent
	}
	return r.Intended
}

// SteadySpan lasts from after past the first measured start (or from, whichever is later; the end of a ramp) to the
// moment load stopped being held: heldUntil, or the last measured start when that is Absent. It is false when nothing
// started in it.
func SteadySpan(rows []Row, after time.Duration, from, heldUntil int64) (Span, bool) {
	raw, ok := RawSpan(rows)
	if !ok {
		return Span{}, false
	}
	s := Span{Start: max(After(raw.Start, int64(after)), from), End: heldUntil}
	last := int64(Absent)
	any := false
	for i := range rows {
		if r := &rows[i]; r.Phase == PhaseMeasured {
			last = max(last, started(r))
		}
	}
	if heldUntil == Absent {
		s.End = last
	}
	for i := range rows {
		if r := &rows[i]; r.Phase == PhaseMeasured && s.holds(started(r)) {
			any = true
			break
		}
	}
	return s, any && s.End > s.Start
}

func (s Span) holds(at int64) bool { return at >= s.Start && at <= s.End }

// SLO is the limits of --goodput; 0 = no limit.
type SLO struct {
	TTFT, ITL, Latency time.Duration
}

// Set tells whether there is any limit.
func (s SLO) Set() bool { return s != SLO{} }

func (s SLO) met(r *Row) bool {
	if v, ok := r.TTFT(); s.TTFT > 0 && (!ok || v > int64(s.TTFT)) {
		return false
	}
	if v, ok := r.ITL(); s.ITL > 0 && ok && v > float64(s.ITL) {
		return false
	}
	if s.Latency > 0 && (r.Last == Absent || r.Last-r.Sent > int64(s.Latency)) {
		return false
	}
	return true
}

// Summarize computes the window of the measured requests that started within span. gaps may be nil. CPU figures are
// left to the caller.
func Summarize(rows []Row, span Span, gaps *hdrhistogram.Histogram, slo SLO) *Window {
	s := NewSummary(span, slo)
	for i := range rows {
		s.Add(&rows[i])
	}
	return s.Window(gaps)
}

// Summary is Summarize over rows that come one at a time. It is used by one goroutine.
type Summary struct {
	span                          Span
	slo                           SLO
	w                             Window
	ttft, itl, latency, effective []float64
	tokens                        int64
	good                          int
	uncounted                     bool // a complete request did not say how many tokens it had
}

// NewSummary begins a summary of the measured requests that start within span.
func NewSummary(span Span, slo SLO) *Summary { return &Summary{span: span, slo: slo} }

// Add takes a row into account; it keeps no reference to it.
func (s *Summary) Add(r *Row) {
	if r.Phase != PhaseMeasured || !s.span.holds(started(r)) {
		return
	}
	w := &s.w
	if r.Wrong != Absent {
		w.Audited++
		if w.WrongTokens == nil {
			w.WrongTokens = new(int64)
		}
		*w.WrongTokens += int64(r.Wrong)
	}
	if r.Ended == EndCanceled {
		w.Canceled++
		return
	}
	if !r.OK() {
		w.Errors++
		countType(&w.ErrorsByType, r.ErrorType)
		return
	}
	w.Requests++
	w.Chunks += int64(r.Chunks)
	if r.OutputTokens == Absent {
		s.uncounted = true
	} else {
		s.tokens += int64(r.OutputTokens)
	}
	if v, ok := r.TTFT(); ok {
		s.ttft = append(s.ttft, float64(v))
		s.latency = append(s.latency, float64(r.Last-r.Sent))
	}
	if v, ok := r.ITL(); ok {
		s.itl = append(s.itl, v)
	}
	s.effective = append(s.effective, float64(r.End-r.Intended))
	if s.slo.Set() && s.slo.met(r) {
		s.good++
	}
}

// Window is the summary of what was added. gaps may be nil. CPU figures are left to the caller.
func (s *Summary) Window(gaps *hdrhistogram.Histogram) *Window {
	w := s.w
	w.StartS, w.EndS, w.ICL = float64(s.span.Start)/1e9, float64(s.span.End)/1e9, DistOfHist(gaps)
	w.TTFT, w.ITL, w.Latency, w.EffectiveLatency = NewDist(s.ttft), NewDist(s.itl), NewDist(s.latency),
		NewDist(s.effective)
	sec := s.span.seconds()
	if w.Requests > 0 && !s.uncounted {
		w.OutputTokens = Ptr(s.tokens)
	}
	if sec > 0 {
		w.RequestsPerS = Ptr(float64(w.Requests) / sec)
		if w.OutputTokens != nil {
			w.OutputTokensPer = Ptr(float64(s.tokens) / sec)
		}
	}
	if s.slo.Set() {
		w.GoodRequests = Ptr(s.good)
		if sec > 0 {
			w.GoodputRequests = Ptr(float64(s.good) / sec)
		}
	}
	return &w
}

// TTFTs and ITLs are the values that the window's distributions were made of, in milliseconds, sorted; they are for
// curves, after Window.
func (s *Summary) TTFTs() []float64 { return inMS(s.ttft) }

// ITLs are the mean inter-token latencies of the requests, as TTFTs.
func (s *Summary) ITLs() []float64 { return inMS(s.itl) }

func inMS(ns []float64) []float64 {
	out := make([]float64, len(ns))
	for i, v := range ns {
		out[i] = v * msPerNs
	}
	return out
}

// SummarizeWarmup counts the warm-up requests, nil when there were none.
func SummarizeWarmup(rows []Row) *Warmup {
	var w *Warmup
	for i := range rows {
		r := &rows[i]
		if r.Phase != PhaseWarmup {
			continue
		}
		if w == nil {
			w = &Warmup{}
		}
		if r.Wrong != Absent {
			if w.WrongTokens == nil {
				w.WrongTokens = new(int64)
			}
			*w.WrongTokens += int64(r.Wrong)
		}
		switch {
		case r.OK():
			w.Requests++
		case r.Ended != EndCanceled:
			w.Errors++
			countType(&w.ErrorsByType, r.ErrorType)
		}
	}
	return w
}

// After is the moment d after at, both in nanoseconds and d not negative. What is too far away to be a moment is the
// last one there is, never one that has passed.
func After(at, d int64) int64 {
	if at > math.MaxInt64-d {
		return math.MaxInt64
	}
	return at + d
}

// MarkRows marks the run for what its rows show.
func MarkRows(run *Run, rows []Row) {
	if NotSteady(rows) {
		run.Mark(MarkNotSteady)
	}
	tokens, chunks, silent := int64(0), int64(0), false
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Phase != PhaseMeasured || !r.OK():
		case r.OutputTokens == Absent:
			silent = true
		case r.Chunks > 0: // an answer without text, such as a call of a tool, has nothing that could come bundled
			tokens, chunks = tokens+int64(r.OutputTokens), chunks+int64(r.Chunks)
		}
	}
	if tokens*10 > chunks*11 {
		run.Mark(MarkBundled)
	}
	if silent {
		run.Mark(MarkNoUsage)
	}
}

// minBusiest is how many starts the busiest 2 s must hold before they can be called a burst: below it chance alone
// gives 3 times the mean.
const minBusiest = 20

// NotSteady tells whether the busiest 2 s hold over 3 times the mean starts of 2 s. The mean is taken over the time in
// which requests started, or over one median latency where that is longer: a closed loop that runs steadily spreads its
// starts over a latency, one that opens with a burst does not.
func NotSteady(rows []Row) bool {
	var starts, lat []float64
	for i := range rows {
		r := &rows[i]
		if r.Phase != PhaseMeasured {
			continue
		}
		starts = append(starts, float64(started(r)))
		if r.OK() {
			lat = append(lat, float64(r.End-started(r)))
		}
	}
	if len(starts) == 0 {
		return false
	}
	slices.Sort(starts)
	slices.Sort(lat)
	span := starts[len(starts)-1] - starts[0]
	if len(lat) > 0 {
		span = max(span, Quantile(lat, .5))
	}
	const two = 2e9
	busiest, lo := 0, 0
	for hi := range starts {
		for starts[hi]-starts[lo] > two {
			lo++
		}
		busiest = max(busiest, hi-lo+1)
	}
	return busiest >= minBusiest && span > 0 && float64(busiest) > 3*float64(len(starts))*two/span
}
