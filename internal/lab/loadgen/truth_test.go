package loadgen

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// told is what the server did with one request, by its own clock.
type told struct {
	kind      string
	got, done time.Time   // the request was there; [DONE], or the end, was written
	content   []time.Time // of each chunk with content
	tokens    int         // as its usage says
	complete  bool
}

// first is how many tokens the first chunk with content has.
func (r *told) first() int {
	if r.kind == "several" {
		return 2
	}
	return 1
}

// truth is a server's own account of a run.
type truth struct {
	mu  sync.Mutex
	all map[string]*told
}

func (tr *truth) of(id string) *told {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.all[id] == nil {
		tr.all[id] = &told{}
	}
	return tr.all[id]
}

// scripted answers request n of truthCases in the way that its turn has.
func (tr *truth) scripted(cancel func(), others *sync.WaitGroup) func(*server, *call) {
	return func(_ *server, c *call) {
		me := tr.of(c.id)
		me.got = time.Now()
		kind := truthCases[c.n%len(truthCases)]
		me.kind = kind
		if kind != "cancelled" {
			defer others.Done()
		}
		chunk := func(idx ...int) { me.content = append(me.content, time.Now()); c.tokens(idx...) }
		finish := func(tokens int) {
			me.tokens, me.complete = tokens, true
			reason := "length"
			if tokens < c.osl {
				reason = "stop"
			}
			c.data(`{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`)
			c.data(fmt.Sprintf(`{"id":"x","choices":[],"usage":{"completion_tokens":%d}}`, tokens))
			me.done = time.Now()
			c.data("[DONE]")
		}
		if kind == "refused" {
			time.Sleep(150 * time.Millisecond)
			me.done = time.Now()
			c.w.WriteHeader(503)
			c.w.Write([]byte(`{"error":{"type":"service_unavailable"}}`))
			return
		}
		c.sse("w") // its first chunk has a role and no content
		switch kind {
		case "slow":
			time.Sleep(900 * time.Millisecond)
		default:
			time.Sleep(300*time.Millisecond + time.Duration(c.n)*15*time.Millisecond)
		}
		gap := 100*time.Millisecond + time.Duration(c.n%5)*20*time.Millisecond
		switch kind {
		case "plain", "slow":
			for i := range c.osl {
				if i > 0 {
					time.Sleep(gap)
				}
				chunk(i)
			}
			finish(c.osl)
		case "several":
			for i := 0; i < c.osl; i += 2 {
				if i > 0 {
					time.Sleep(2 * gap)
				}
				c.data(`{"id":"x","choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}`) // counts as nothing
				chunk(i, i+1)
			}
			finish(c.osl)
		case "empty":
			finish(0)
		case "failed":
			chunk(0)
			time.Sleep(gap)
			chunk(1)
			me.done = time.Now()
			c.data(`{"error":{"message":"gone","type":"upstream_error"}}`)
			c.data("[DONE]")
		case "cut":
			chunk(0)
			time.Sleep(gap)
			me.done = time.Now()
			panic(http.ErrAbortHandler)
		case "cancelled":
			chunk(0)
			others.Wait()
			time.Sleep(200 * time.Millisecond) // the client has read what the others have written
			me.done = time.Now()
			cancel()
			<-c.r.Context().Done()
		}
	}
}

// truthCases are what the server does, in the order of arrival.
var truthCases = []string{"plain", "several", "slow", "empty", "refused", "failed", "plain", "cut", "several", "plain",
	"cancelled", "plain", "several"}

// TestTruth: every metric that a run reports agrees with the server's own stamps to 1 ms or 1%, whichever is more. Both
// clocks are one; between the stamps lie the kernel and the schedulers, which a busy machine holds up. So runs are
// repeated until each metric has agreed in one: a figure that is defined or computed wrongly agrees in none.
func TestTruth(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		const tries = 10
		agreed := map[string]bool{}
		var differ map[string]string
		for range tries {
			differ = map[string]string{}
			compared := 0
			truthRun(t, client, func(what string, got, want, tolerance float64) {
				compared++
				if math.Abs(got-want) <= tolerance {
					agreed[what] = true
				} else if !agreed[what] {
					differ[what] = fmt.Sprintf("%s is %.3f, the server says %.3f", what, got, want)
				}
			})
			if compared < 80 {
				t.Fatalf("only %d metrics were compared", compared)
			}
			if len(differ) == 0 {
				return
			}
		}
		for _, d := range differ {
			t.Error(d)
		}
	})
}

// truthRun makes one run and hands each metric that it reports to compare, with what the server says.
func truthRun(t *testing.T, client string, compare func(what string, got, want, tolerance float64)) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := len(truthCases)
	tr := &truth{all: map[string]*told{}}
	var others sync.WaitGroup
	others.Add(n - 1)
	s := newServer(t, tr.scripted(cancel, &others))
	defer s.Close()
	run, rows := loadCtx(t, ctx, s, Config{Client: client, Concurrency: n, Requests: n,
		Ramp: time.Duration(n) * 20 * time.Millisecond, OSL: 10, ISL: 5,
		Goodput: report.SLO{TTFT: 500 * time.Millisecond, Latency: 3 * time.Second}})

	// What no clock can blur must hold each time.
	w := run.Raw
	wantErrors := map[string]int{"service_unavailable": 1, "upstream_error": 1, "truncated": 1}
	if w.Requests != 9 || w.Errors != 3 || w.Canceled != 1 || fmt.Sprint(w.ErrorsByType) != fmt.Sprint(wantErrors) ||
		*w.OutputTokens != 80 || w.Chunks != 65 || *w.WrongTokens != 0 {
		t.Fatalf("raw %+v, errors %v", w, w.ErrorsByType)
	}
	if !run.Marked(report.MarkPartial) || len(rows) != n {
		t.Fatalf("%d rows, marks %v", len(rows), run.Marks)
	}

	var ttft, itl, latency, effective, gaps []float64
	var first, last time.Time
	good := 0
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	for _, r := range tr.all {
		if first.IsZero() || r.got.Before(first) {
			first = r.got
		}
		if r.done.After(last) {
			last = r.done
		}
		for i := 1; i < len(r.content); i++ {
			gaps = append(gaps, ms(r.content[i].Sub(r.content[i-1])))
		}
		if !r.complete {
			continue
		}
		effective = append(effective, ms(r.done.Sub(r.got)))
		if len(r.content) == 0 {
			continue
		}
		a, z := r.content[0], r.content[len(r.content)-1]
		ttft, latency = append(ttft, ms(a.Sub(r.got))), append(latency, ms(z.Sub(r.got)))
		itl = append(itl, ms(z.Sub(a))/float64(r.tokens-r.first()))
		if a.Sub(r.got) <= 500*time.Millisecond && z.Sub(r.got) <= 3*time.Second {
			good++
		}
	}
	check := func(what string, got, want float64) { compare(what, got, want, max(1, want*.01)) }
	for i := range rows { // by what the server did, so that a kind of response that is measured wrongly shows
		r := &rows[i]
		me := tr.all[r.ID]
		if v, ok := r.TTFT(); ok {
			check("TTFT of "+me.kind, float64(v)/1e6, ms(me.content[0].Sub(me.got)))
			check("last content of "+me.kind, float64(r.Last-r.Sent)/1e6, ms(me.content[len(me.content)-1].Sub(me.got)))
		}
		if v, ok := r.ITL(); ok {
			check("ITL of "+me.kind, v/1e6,
				ms(me.content[len(me.content)-1].Sub(me.content[0]))/float64(me.tokens-me.first()))
		}
		check("end of "+me.kind, float64(r.End-r.Sent)/1e6, ms(me.done.Sub(me.got)))
		if r.Chunks != len(me.content) || r.OK() != me.complete || r.OK() && r.OutputTokens != me.tokens {
			t.Errorf("%s: %d chunks, the server wrote %d; row %+v", me.kind, r.Chunks, len(me.content), r)
		}
	}
	dist := func(what string, d *report.Dist, v []float64) {
		if d == nil {
			t.Fatalf("no %s", what)
		}
		sort.Float64s(v)
		rank := func(p float64) float64 { return v[int(math.Ceil(p*float64(len(v))))-1] }
		sum, sq := 0.0, 0.0
		for _, x := range v {
			sum += x
		}
		mean := sum / float64(len(v))
		for _, x := range v {
			sq += (x - mean) * (x - mean)
		}
		for name, pair := range map[string][2]float64{
			"avg": {d.Avg, mean}, "min": {d.Min, v[0]}, "max": {d.Max, v[len(v)-1]}, "p50": {d.P50, rank(.5)},
			"p90": {d.P90, rank(.9)}, "p95": {d.P95, rank(.95)},
			"p99": {d.P99, rank(.99)}, "p99.9": {d.P999, rank(.999)}, "std": {d.Std, math.Sqrt(sq / float64(len(v)))},
		} {
			check(what+" "+name, pair[0], pair[1])
		}
	}
	dist("TTFT", w.TTFT, ttft)
	dist("ITL", w.ITL, itl)
	dist("ICL", w.ICL, gaps)
	dist("latency", w.Latency, latency)
	dist("effective latency", w.EffectiveLatency, effective)
	sec := last.Sub(first).Seconds()
	// Rates: 1% alone, because they have no milliseconds.
	for what, pair := range map[string][2]float64{
		"requests/s": {*w.RequestsPerS, 9 / sec}, "output tokens/s": {*w.OutputTokensPer, 80 / sec},
		"goodput": {*w.GoodputRequests, float64(good) / sec},
		"window":  {w.EndS - w.StartS, sec},
	} {
		compare(what, pair[0], pair[1], pair[1]*.01)
	}
	compare("good requests", float64(*w.GoodRequests), float64(good), 0)
}
