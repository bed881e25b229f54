package mock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
	"github.com/laneway-ai/laneway/responseplane"
)

func TestInjectedFailures(t *testing.T) {
	for _, kind := range requestFailures {
		t.Run(string(kind), func(t *testing.T) {
			run(t, Config{FailureRate: 1, FailureTypes: []FailureType{kind}}, func(t *testing.T, e *Engine, c *counts) {
				for i := range 20 {
					w := newScript()
					err := e.Submit(req(fmt.Sprint("r", i), 10), w)
					var refused *RefusedError
					if kind == FailRefuse {
						if !errors.As(err, &refused) || refused.Reason != RefusedInjected {
							t.Fatalf("got %v", err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					n := w.count()
					if n >= 10 {
						t.Errorf("all %d tokens came", n)
					}
					switch kind {
					case FailFail:
						if w.now().failed == nil || w.now().failed.Code != responseplane.CodeInternal {
							t.Errorf("end %+v, want failed", w.now().failed)
						}
					case FailTruncate:
						w.wantEnd(t, mockproto.FinishLength, 10) // it lies
					case FailStall:
						if r, _ := e.Load(); w.now().ended || r != 1 {
							t.Errorf("ended %v, %d running; want a stalled one", w.now().ended, r)
						}
						w.kill()
						time.Sleep(itl)
						synctest.Wait()
						if r, _ := e.Load(); r != 0 {
							t.Error("a stalled request was not dropped after a kill")
						}
					}
				}
				if n := c.now().injected[kind]; n != 20 {
					t.Errorf("%d failures were counted, want 20", n)
				}
				if kind == FailStall && c.now().cancelled != 20 {
					t.Errorf("%d cancelled, want 20", c.now().cancelled)
				}
			})
		})
	}
}

func TestFailureRate(t *testing.T) {
	fates := func() (out []string) {
		run(t, Config{Seed: 5, FailureRate: 0.25, FailureTypes: []FailureType{FailRefuse, FailFail}, MaxNumSeqs: 2000},
			func(t *testing.T, e *Engine, c *counts) {
				var ws []*script
				for range 1000 {
					w := newScript()
					if e.Submit(req("r", 10), w) != nil {
						out = append(out, "refused")
						continue
					}
					ws = append(ws, w)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for _, w := range ws {
					if w.now().failed != nil {
						out = append(out, fmt.Sprint("failed ", w.count()))
					}
				}
			})
		return out
	}
	a, b := fates(), fates()
	if len(a) < 200 || len(a) > 300 {
		t.Errorf("%d of 1000 failed at a rate of 0.25", len(a))
	}
	if n := len(slices.DeleteFunc(slices.Clone(a), func(s string) bool { return s != "refused" })); n < len(a)/3 ||
		n > 2*len(a)/3 {
		t.Errorf("%d of %d failures were refusals, want about half", n, len(a))
	}
	if !slices.Equal(a, b) {
		t.Error("the same seed gave other failures")
	}
}

func TestParseFailureTypes(t *testing.T) {
	got, err := ParseFailureTypes("stall, fail,stall")
	if err != nil || !slices.Equal(got, []FailureType{FailStall, FailFail}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := ParseFailureTypes(" "); got != nil || err != nil {
		t.Errorf("empty: %v, %v", got, err)
	}
	if _, err := ParseFailureTypes("stall,explode"); err == nil || !strings.Contains(err.Error(), `"explode"`) {
		t.Errorf("got %v", err)
	}
}

// TestStopStrings compares with a search in the whole text, for stop strings at every place and of many lengths.
func TestStopStrings(t *testing.T) {
	const n = 700 // more than two of the blocks that are searched together
	g := tokentext.New("id")
	var text string
	var starts []int
	for i := range n {
		starts = append(starts, len(text))
		text += string(g.Append(nil, i))
	}
	check := func(stops ...string) {
		t.Helper()
		at := -1
		for _, s := range stops {
			if k := strings.Index(text, s); k >= 0 && (at < 0 || k < at) {
				at = k
			}
		}
		whole, tail, found := cutAtStop(g, n, stops)
		if found != (at >= 0) {
			t.Fatalf("%q: found %v, want %v", stops, found, at >= 0)
		}
		if found && (starts[whole]+len(tail) != at || text[starts[whole]:at] != tail) {
			t.Fatalf("%q: cut after %d tokens and %q, want at byte %d", stops, whole, tail, at)
		}
	}
	for at := 0; at < len(text); at += 7 {
		for _, l := range []int{1, 3, 9, 100, 900} {
			if at+l <= len(text) {
				check(text[at : at+l])
				check("????", text[at:at+l])
				if at+2 < len(text) { // a longer one that begins earlier than a short one
					check(text[at+2:min(at+5, len(text))], text[at:at+l])
				}
			}
		}
	}
	check("not there!")
	check(strings.Repeat("?", 900))
	run(t, Config{}, func(t *testing.T, e *Engine, c *counts) {
		second := string(tokentext.New("a").Append(nil, 1))
		stop := func(s string) mockproto.Request { r := req("a", 10); r.Stop = []string{s}; return r }
		middle, begin := submit(t, e, stop(second[2:])), submit(t, e, stop(string(tokentext.New("a").Append(nil, 0))))
		time.Sleep(time.Minute)
		synctest.Wait()
		middle.wantEnd(t, mockproto.FinishStop, 2)
		if recs, _ := middle.tokens(); recs[1] != second[:2] {
			t.Errorf("records %q, want the second one to be %q", recs, second[:2])
		}
		begin.wantEnd(t, mockproto.FinishStop, 0)
		for _, r := range []mockproto.Request{stop(strings.Repeat("x", 2000)), req("a", MaxOutputTokens+1)} {
			var refused *RefusedError
			if err := e.Submit(r, newScript()); !errors.As(err, &refused) || refused.Reason != RefusedTooLong {
				t.Errorf("got %v, want too long", err)
			}
		}
	})
}

func TestConfigComplaints(t *testing.T) {
	err := Config{
		Index: 3, Count: 2, MaxNumSeqs: -1, MaxWaitingQueueLength: 1 << 30, OutputTokens: -1, TokenBytes: 3,
		SpeedupRatio:      -1,
		InterTokenLatency: -1, TimeToFirstToken: 2 * time.Hour, FailureRate: 1.5, FailureTypes: []FailureType{"x"},
	}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Flush", "index 3 of 2", "max-num-seqs is -1", "max-waiting-queue-length",
		"output-tokens is -1", "token-bytes is 3",
		"speedup-ratio is -1", "inter-token-latency is -1ns", "time-to-first-token is 2h",
		"failure-injection-rate is 1.5", `type "x"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	for _, c := range []Config{
		{Flush: func() {}, SpeedupRatio: 10000},
		{Flush: func() {}, FailureRate: 0.1},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v accepted", c)
		}
	}
	if _, err := Start(Config{}); err == nil {
		t.Error("Start without Flush")
	}
}
