package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// The tests of this file are the mistakes of measuring that have made real tables worthless, each made on purpose: the
// load generator must refuse it or say it. Two are elsewhere: holders between real processes in internal/test/endtoend
// (TestHolders), and a run without proof of transit, whose exit code is cmd/loadgen's (TestExitCodes) and whose
// counting is TestProofOfTransit's. What concerns several runs is the analysis's.

// engineOf is enough of an engine to judge a run.
func engineOf(addr string) *engine {
	return &engine{cfg: Config{Concurrency: 8, Loops: 1}.withDefaults(), addr: addr, t0: time.Now()}
}

// fakeClient is a client that makes no load.
type fakeClient struct{ name string }

func (c fakeClient) kind() string              { return c.name }
func (c fakeClient) run(context.Context) error { return nil }

// sampled makes samples of this process, one a second from start, that used so much processor time a second.
func sampled(t0 time.Time, start, n int, perSecond time.Duration) (out []sample) {
	for i := range n {
		out = append(out, sample{at: t0.Add(time.Duration(start+i) * time.Second),
			self: procstat.CPU{User: time.Duration(i) * perSecond}, selfOK: true})
	}
	return out
}

// Trap 1: the load generator on the server's cores.
func TestTrapSharedCores(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("which cores a process may use is read on Linux only")
	}
	s := newServer(t, normal(0, 0)) // in this very process
	run, _ := load(t, s, Config{Requests: 2, OSL: 2, ISL: 1})
	if !run.Marked(report.MarkSharedCores) {
		t.Errorf("marks %v: the server runs in the load generator's process", run.Marks)
	}
	var table bytes.Buffer
	if err := report.Print(&table, run); err != nil || !strings.Contains(table.String(), "MARKED: ") ||
		!strings.Contains(table.String(), report.MarkSharedCores) {
		t.Errorf("%v: the table does not say it:\n%s", err, table.String())
	}
}

// Trap 2: CPU per request from samples of another time, like the idle tail.
func TestTrapSamplesOfAnotherTime(t *testing.T) {
	t0 := time.Now()
	rows := []report.Row{{ID: "a", Phase: report.PhaseMeasured, Ended: report.EndComplete, Sent: 0, First: 1, Last: 2,
		End: 9e9}}
	span := report.Span{Start: 0, End: 10e9}
	for name, c := range map[string]struct {
		samples []sample
		want    bool
	}{
		"over the window": {sampled(t0, 0, 11, time.Second), true}, "after it": {sampled(t0, 20, 11, time.Second),
			false},
		"its second half": {sampled(t0, 5, 6, time.Second), false}, "one": {sampled(t0, 0, 1, time.Second), false},
		"none": {nil, false},
	} {
		var w report.Window
		newFigures(t0, c.samples, rows).window(&w, span)
		if (w.LoadgenCPU != nil) != c.want {
			t.Errorf("samples %s: CPU per request %v", name, w.LoadgenCPU)
		}
	}
	run, _ := load(t, newServer(t, normal(0, 0)), Config{Requests: 1, OSL: 2, ISL: 1})
	if at, err := time.Parse("2006-01-02T15:04:05.000Z07:00", run.StartedAt); err != nil ||
		time.Since(at).Abs() > time.Minute {
		t.Errorf("started_at %q is no moment with an offset: %v", run.StartedAt, err)
	}
}

// Trap 3: one process holds the backlog, and its run is compared with others.
func TestTrapHolderIsNamed(t *testing.T) {
	s := newServer(t, func(s *server, c *call) {
		wait := time.Millisecond
		if c.n%4 == 0 {
			wait = 400 * time.Millisecond
		}
		c.sse("w" + strconv.Itoa(c.n%4))
		time.Sleep(wait)
		c.tokens(0)
		time.Sleep(5 * time.Millisecond)
		c.tokens(1)
		c.finish(2)
	})
	run, _ := load(t, s, Config{Concurrency: 4, Requests: 24, OSL: 2, ISL: 1})
	if run.Holders == nil || *run.Holders != 1 {
		t.Fatalf("holders %v", run.Holders)
	}
	for _, p := range run.Processes {
		if p.Holder != nil && *p.Holder != (p.Name == "p-w0") {
			t.Errorf("process %+v", p)
		}
	}
}

// Trap 4: the opening burst read as the p99 of the run.
func TestTrapOpeningBurst(t *testing.T) {
	burst := func(spread time.Duration) (rows []report.Row) {
		for i := range 100 { // a closed loop of 100 whose responses take 20 s, twice
			for k := range 2 {
				at := int64(i)*int64(spread)/100 + int64(k)*20e9
				rows = append(rows, report.Row{ID: fmt.Sprint(i, k), Phase: report.PhaseMeasured,
					Ended: report.EndComplete, Sent: at, Intended: at, First: at + 1, Last: at + 2, End: at + 20e9})
			}
		}
		return rows
	}
	e := engineOf("192.0.2.1:1")
	for spread, want := range map[time.Duration]bool{0: true, 20 * time.Second: false} {
		run := &report.Run{}
		e.judge(run, fakeClient{ClientEpoll}, newLocal(), newFigures(e.t0, nil, nil), burst(spread), nil)
		if run.Marked(report.MarkNotSteady) != want {
			t.Errorf("starts spread over %v: marks %v", spread, run.Marks)
		}
	}
}

// Trap 5: a mean inter-token latency that is the better the later a response begins. The report has the gaps and the
// latency beside it.
func TestTrapLateBurst(t *testing.T) {
	s := newServer(t, func(s *server, c *call) {
		c.sse("w")
		time.Sleep(300 * time.Millisecond)
		for i := range c.osl {
			c.tokens(i)
		}
		c.finish(c.osl)
	})
	run, _ := load(t, s, Config{Concurrency: 2, Requests: 4, OSL: 10, ISL: 1})
	w := run.Raw
	if w.TTFT.Min < 299 || w.Latency.Min < 299 || w.EffectiveLatency.Min < 299 || w.ITL.P50 > w.TTFT.P50/3 ||
		w.ICL == nil {
		t.Errorf("TTFT %+v ITL %+v ICL %+v latency %+v", w.TTFT, w.ITL, w.ICL, w.Latency)
	}
	var table bytes.Buffer
	if err := report.Print(&table, run); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"TTFT p50", "ITL p50", "chunk gap p50", "effective latency p50"} {
		if !strings.Contains(table.String(), line) {
			t.Errorf("the table has no %q:\n%s", line, table.String())
		}
	}
}

// Trap 6: the percentiles of those that survived.
func TestTrapSurvivors(t *testing.T) {
	s := newServer(t, func(s *server, c *call) {
		if c.n%3 == 0 {
			c.w.WriteHeader(503)
			return
		}
		normal(0, 0)(s, c)
	})
	run, _ := load(t, s, Config{Concurrency: 2, Requests: 12, OSL: 2, ISL: 1})
	var table bytes.Buffer
	if err := report.Print(&table, run); err != nil {
		t.Fatal(err)
	}
	errors, latencies := strings.Index(table.String(), "http_503 4"), strings.Index(table.String(), "TTFT p50")
	if run.Raw.Errors != 4 || run.Verdict(0.1) == nil || errors < 0 || errors > latencies {
		t.Errorf("4 of 12 failed; verdict %v, the table says\n%s", run.Verdict(0.1), table.String())
	}
}

// Trap 7: a run that is cut off by time, or by one record that makes no sense, never ends or leaves nothing.
func TestTrapCutOffAndBadRecord(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		t.Parallel()
		s := newServer(t, func(s *server, c *call) {
			switch c.n {
			case 3:
				c.sse("w")
				<-c.r.Context().Done() // for ever
			case 5:
				c.sse("w")
				c.data(`{"choices":[{"delta":{"content":`)
				c.finish(1)
			default:
				normal(0, 10*time.Millisecond)(s, c)
			}
		})
		run, rows := load(t, s, Config{Client: client, Concurrency: 3, Requests: 10, Timeout: 3 * time.Second, OSL: 4,
			ISL: 1})
		by := map[string]int{}
		for i := range rows {
			by[rows[i].Ended]++
		}
		if by[report.EndTimeout] != 1 || by[report.EndProtocol] != 1 || by[report.EndComplete] != 8 ||
			run.Raw.Requests != by[report.EndComplete] || run.Raw.Errors != 2 {
			t.Errorf("ends %v, raw %+v", by, run.Raw)
		}
	})
}

// Trap 8: the client's own runtime is the limit.
func TestTrapClientIsTheLimit(t *testing.T) {
	e := engineOf("192.0.2.1:1")
	span := []report.Span{{Start: 0, End: 10e9}}
	for used, want := range map[time.Duration]bool{950 * time.Millisecond: true, 500 * time.Millisecond: false} {
		run := &report.Run{}
		// one loop
		e.judge(run, fakeClient{ClientEpoll}, newLocal(), newFigures(e.t0, sampled(e.t0, 0, 11, used), nil), nil, span)
		if run.Marked(report.MarkClientLimited) != want || run.Client.Limited != want {
			t.Errorf("%v of one core used: marks %v", used, run.Marks)
		}
	}
	late := newLocal()
	late.late(int64(20 * time.Millisecond))
	run := &report.Run{}
	e.judge(run, fakeClient{ClientGoroutines}, late, newFigures(e.t0, nil, nil), nil, nil)
	if !run.Marked(report.MarkClientLimited) {
		t.Errorf("20 ms late: marks %v", run.Marks)
	}
}

// Trap 10: nobody knows what the machine was set to.
func TestTrapEnvironmentIsRecorded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("read on Linux only")
	}
	run, _ := load(t, newServer(t, normal(0, 0)), Config{Requests: 1, OSL: 2, ISL: 1, Settings: map[string]any{"x": 1}})
	env := run.Environment
	if env.RmemMax == nil || env.WmemMax == nil || env.MTU == nil || env.Kernel == "" || env.CPUs != procstat.CPUs() ||
		env.HostCPUs == 0 || env.Go == "" || env.TCPCongestionControl == "" || run.Config["x"] != 1 {
		t.Errorf("environment %+v, config %v", env, run.Config)
	}
	if run.Client.Kind == "" {
		t.Error("the client is not named")
	}
}
