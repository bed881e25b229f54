package report

import (
	"fmt"
	"math"
	"testing"
	"time"
)

const msec = int64(time.Millisecond)

// row makes a complete measured request that was sent at start ms and took these times (ms) to the first and last of n
// tokens.
func row(id int, start, ttft, gen int64, n int) Row {
	s := start * msec
	return Row{ID: fmt.Sprint("r", id), Phase: PhaseMeasured, Intended: max(0, s-msec), Sent: s, First: s + ttft*msec,
		Last: s + (ttft+gen)*msec,
		End:  s + (ttft+gen)*msec + msec, Status: 200, Ended: EndComplete, OutputTokens: n, Chunks: n, Wrong: 0}
}

func failed(id int, start int64, errType string) Row {
	return Row{ID: fmt.Sprint("r", id), Phase: PhaseMeasured, Intended: start * msec, Sent: start * msec, First: Absent,
		Last: Absent, End: (start + 1) * msec,
		Status: 503, Ended: EndFailed, ErrorType: errType, OutputTokens: Absent, Wrong: Absent}
}

func TestWindowsArithmetic(t *testing.T) {
	warm := row(0, 500, 1, 1, 2)
	warm.Phase, warm.Wrong = PhaseWarmup, 3
	canceled := failed(9, 14_000, "")
	canceled.Ended = EndCanceled
	rows := []Row{
		warm,
		row(1, 1000, 100, 1000, 11),   // raw only
		row(2, 10_999, 200, 1000, 11), // 1 ms too early for steady
		row(3, 11_000, 300, 1000, 11), // exactly 10 s after the first
		row(4, 13_000, 500, 2000, 11),
		row(5, 15_000, 50, 0, 1), // no ITL
		failed(6, 12_000, "overloaded_error"),
		failed(7, 2000, "timeout"),
		canceled,
	}
	raw, ok := RawSpan(rows)
	if want := (Span{1000 * msec, 15_501 * msec}); !ok || raw != want {
		t.Fatalf("raw span %v %v, want %v", raw, ok, want)
	}
	w := Summarize(rows, raw, nil, SLO{TTFT: 200 * time.Millisecond, ITL: 100 * time.Millisecond})
	if w.Requests != 5 || w.Errors != 2 || w.Canceled != 1 || w.ErrorsByType["overloaded_error"] != 1 ||
		w.ErrorsByType["timeout"] != 1 {
		t.Errorf("raw %+v", w)
	}
	if *w.OutputTokens != 45 || math.Abs(*w.RequestsPerS-5/14.501) > 1e-9 ||
		math.Abs(*w.OutputTokensPer-45/14.501) > 1e-9 {
		t.Errorf("rates %v %v", *w.RequestsPerS, *w.OutputTokensPer)
	}
	if w.TTFT.Min != 50 || w.TTFT.P50 != 200 || w.TTFT.Max != 500 || w.ITL.Min != 100 || w.ITL.Max != 200 ||
		w.Latency.Max != 2500 || w.EffectiveLatency.Max != 2502 {
		t.Errorf("ttft %+v itl %+v latency %+v effective %+v", w.TTFT, w.ITL, w.Latency, w.EffectiveLatency)
	}
	if *w.GoodRequests != 3 || *w.WrongTokens != 0 || w.Audited != 5 {
		t.Errorf("good %d, wrong %d of %d", *w.GoodRequests, *w.WrongTokens, w.Audited)
	}

	steady, ok := SteadySpan(rows, 10*time.Second, 0, Absent)
	if want := (Span{11_000 * msec, 15_000 * msec}); !ok || steady != want {
		t.Fatalf("steady span %v %v, want %v", steady, ok, want)
	}
	w = Summarize(rows, steady, nil, SLO{})
	if w.Requests != 3 || w.Errors != 1 || w.Canceled != 1 || *w.RequestsPerS != 0.75 || w.TTFT.P50 != 300 ||
		w.GoodRequests != nil {
		t.Errorf("steady %+v", w)
	}
	// Load stopped being held before the last start; a ramp lasted past the 10 s.
	if steady, ok = SteadySpan(rows, 10*time.Second, 12_500*msec, 14_500*msec); !ok ||
		Summarize(rows, steady, nil, SLO{}).Requests != 1 {
		t.Errorf("steady with ramp %v %v", steady, ok)
	}
	if _, ok = SteadySpan(rows, time.Minute, 0, Absent); ok {
		t.Error("a steady window without requests")
	}
	if wu := SummarizeWarmup(rows); wu.Requests != 1 || wu.Errors != 0 || *wu.WrongTokens != 3 {
		t.Errorf("warm-up %+v", wu)
	}
}

func TestUncountedTokensGiveNoRate(t *testing.T) {
	rows := []Row{row(1, 0, 1, 100, 11), row(2, 0, 1, 100, Absent)}
	span, _ := RawSpan(rows)
	w := Summarize(rows, span, nil, SLO{})
	if w.OutputTokens != nil || w.OutputTokensPer != nil || w.ITL == nil || w.Requests != 2 {
		t.Errorf("%+v", w)
	}
}

func TestNotSteady(t *testing.T) {
	var burst, steady []Row
	for i := range 1000 {
		burst = append(burst, row(i, int64(i%200), 100, 50_000, 256)) // all within 0.2 s, each takes 50 s
		steady = append(steady, row(i, int64(i)*50, 100, 50_000, 256))
	}
	late := append([]Row(nil), steady...)
	for i := range 300 { // a gap, then a burst
		late[500+i] = row(500+i, 40_000, 100, 50_000, 256)
	}
	few := []Row{row(1, 0, 1, 10, 2), row(2, 100, 1, 10, 2), row(3, 60_000, 1, 10, 2)}
	for _, c := range []struct {
		name string
		rows []Row
		want bool
	}{{"opening burst", burst, true}, {"even", steady, false}, {"late burst", late, true}, {"a handful", few, false},
		{"none", nil, false}} {
		if got := NotSteady(c.rows); got != c.want {
			t.Errorf("%s: not steady %v", c.name, got)
		}
	}
}

func TestHolders(t *testing.T) {
	// means are the times to first token of eight processes, in ms; the inter-token latency is 20 ms.
	for _, c := range []struct {
		name      string
		means     []int64
		want      int
		reference int
	}{
		{"all alike", []int64{20, 21, 22, 23, 20, 21, 22, 23}, 0, 8},
		{"alike and slow", []int64{900, 910, 920, 930, 940, 950, 960, 970}, 0, 8},
		{"one", []int64{20, 21, 22, 23, 20, 21, 22, 5000}, 1, 1},
		{"two", []int64{20, 21, 22, 23, 20, 21, 3000, 5000}, 2, 2},
		{"four", []int64{20, 21, 22, 23, 2000, 4000, 3000, 5000}, 4, 4},
		{"below a quarter of the slowest", []int64{20, 21, 22, 23, 20, 21, 1000, 5000}, 1, 1},
		{"three times but not three inter-token latencies", []int64{2, 2, 2, 2, 2, 2, 2, 30}, 0, 1},
		{"three inter-token latencies but not three times", []int64{100, 100, 100, 100, 100, 100, 100, 200}, 0, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rows []Row
			for p, ms := range c.means {
				for k := range 4 { // around the mean
					r := row(p*10+k, int64(k)*1000, ms+int64(k%2)*2-1, 20*10, 11)
					r.Process = fmt.Sprint("p", p)
					rows = append(rows, r)
				}
			}
			w := row(999, 0, 1, 1, 2)
			w.Phase, w.Process = PhaseWarmup, "p0" // does not count
			rows = append(rows, w)
			got, ref := 0, 0
			for _, l := range FindHolders(rows) {
				if l.Requests != 4 {
					t.Errorf("%s has %d requests", l.Name, l.Requests)
				}
				if l.Holder {
					got++
				}
				if l.Reference {
					ref++
				}
			}
			if got != c.want || ref != c.reference {
				t.Errorf("%d holders (%d by the reference), want %d (%d)", got, ref, c.want, c.reference)
			}
		})
	}
	if FindHolders([]Row{row(1, 0, 1, 1, 2)}) != nil {
		t.Error("holders without process names")
	}
}

func TestSeries(t *testing.T) {
	rows := []Row{row(1, 100, 50, 2000, 5), row(2, 900, 400, 100, 5), failed(3, 1500, "x")}
	got := Series(rows, []int64{3, 4})
	if len(got) != 3 {
		t.Fatalf("%d seconds", len(got))
	}
	for i, want := range []struct{ started, completed, errors, open int }{{2, 0, 0, 2}, {1, 1, 1, 1}, {0, 1, 0, 0}} {
		s := got[i]
		if s.T != i || s.Started != want.started || s.Completed != want.completed || s.Errors != want.errors ||
			s.Open != want.open {
			t.Errorf("second %d: %+v, want %+v", i, s, want)
		}
	}
	if got[0].Chunks != 3 || got[1].Chunks != 4 || *got[0].TTFTp50 != 50 || *got[1].TTFTp50 != 400 ||
		got[2].TTFTp50 != nil || got[0].FrontendCPU != nil {
		t.Errorf("%+v", got)
	}
	want := csvHeader + "0,2,0,0,2,3,50.0000,50.0000,,,,\n1,1,1,1,1,4,400.0000,400.0000,,,,\n2,0,1,0,0,0,,,,,,\n"
	if csv := string(AppendCSV(nil, got)); csv != want {
		t.Errorf("csv\n%s\nwant\n%s", csv, want)
	}
}
