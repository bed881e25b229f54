package report

import (
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

// SteadySpan lasts from after past the first measured start (or from, whichever is later; the end of a ramp) to the moment load stopped being held: heldUntil,
// or the last measured start when that is Absent. It is false when nothing started in it.
func SteadySpan(rows []Row, after time.Duration, from, heldUntil int64) (Span, bool) {
	raw, ok := RawSpan(rows)
	if !ok {
		return Span{}, false
	}
	s := Span{Start: max(raw.Start+int64(after), from), End: heldUntil}
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

// Summarize computes the window of the measured requests that started within span. gaps may be nil. CPU figures are left to the caller.
func Summarize(rows []Row, span Span, gaps *hdrhistogram.Histogram, slo SLO) *Window {
	w := &Window{StartS: float64(span.Start) / 1e9, EndS: float64(span.End) / 1e9, ICL: DistOfHist(gaps)}
	var ttft, itl, latency, effective []float64
	var tokens int64
	counted := true // every complete request said how many tokens it had
	good := 0
	for i := range rows {
		r := &rows[i]
		if r.Phase != PhaseMeasured || !span.holds(started(r)) {
			continue
		}
		if r.Wrong != Absent {
			w.Audited++
			if w.WrongTokens == nil {
				w.WrongTokens = new(int64)
			}
			*w.WrongTokens += int64(r.Wrong)
		}
		if r.Ended == EndCanceled {
			w.Canceled++
			continue
		}
		if !r.OK() {
			w.Errors++
			if w.ErrorsByType == nil {
				w.ErrorsByType = map[string]int{}
			}
			w.ErrorsByType[r.ErrorType]++
			continue
		}
		w.Requests++
		w.Chunks += int64(r.Chunks)
		if r.OutputTokens == Absent {
			counted = false
		} else {
			tokens += int64(r.OutputTokens)
		}
		if v, ok := r.TTFT(); ok {
			ttft = append(ttft, float64(v))
			latency = append(latency, float64(r.Last-r.Sent))
		}
		if v, ok := r.ITL(); ok {
			itl = append(itl, v)
		}
		effective = append(effective, float64(r.End-r.Intended))
		if slo.Set() && slo.met(r) {
			good++
		}
	}
	w.TTFT, w.ITL, w.Latency, w.EffectiveLatency = NewDist(ttft), NewDist(itl), NewDist(latency), NewDist(effective)
	sec := span.seconds()
	if w.Requests > 0 && counted {
		w.OutputTokens = Ptr(tokens)
	}
	if sec > 0 {
		w.RequestsPerS = Ptr(float64(w.Requests) / sec)
		if w.OutputTokens != nil {
			w.OutputTokensPer = Ptr(float64(tokens) / sec)
		}
	}
	if slo.Set() {
		w.GoodRequests = Ptr(good)
		if sec > 0 {
			w.GoodputRequests = Ptr(float64(good) / sec)
		}
	}
	return w
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
			if w.ErrorsByType == nil {
				w.ErrorsByType = map[string]int{}
			}
			w.ErrorsByType[r.ErrorType]++
		}
	}
	return w
}

// minBusiest is how many starts the busiest 2 s must hold before they can be called a burst: below it chance alone gives 3 times the mean.
const minBusiest = 20

// NotSteady tells whether the busiest 2 s hold over 3 times the mean starts of 2 s. The mean is taken over the time in which requests
// started, or over one median latency where that is longer: a closed loop that runs steadily spreads its starts over a latency, one that opens with a
// burst does not.
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
