package loadgen

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// together runs generators with these configurations at the same time and returns their directories.
func together(t *testing.T, s *server, cfgs ...Config) (dirs []string, runs []*report.Run) {
	t.Helper()
	dirs, runs = make([]string, len(cfgs)), make([]*report.Run, len(cfgs))
	errs := make([]error, len(cfgs))
	var wg sync.WaitGroup
	for i, cfg := range cfgs {
		dirs[i] = filepath.Join(t.TempDir(), "run")
		cfg.URL, cfg.Dir, cfg.Timeout = redact.New(s.URL), dirs[i], 30*time.Second
		wg.Go(func() { runs[i], errs[i] = Run(t.Context(), cfg) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return dirs, runs
}

func TestMerge(t *testing.T) {
	s := newServer(t, func(s *server, c *call) {
		if c.n == 17 {
			c.w.WriteHeader(503)
			c.w.Write([]byte(`{"error":{"type":"service_unavailable"}}`))
			return
		}
		normal(time.Duration(c.n%7)*time.Millisecond, 10*time.Millisecond)(s, c)
	})
	base := Config{OSL: 20, ISL: 4, Warmup: 2, SteadyAfter: 200 * time.Millisecond,
		Goodput: report.SLO{TTFT: 3 * time.Millisecond}, Settings: map[string]any{"goodput": "ttft:3ms"}}
	a, b := base, base
	a.Concurrency, a.Requests, a.Client = 3, 45, ClientGoroutines
	b.Concurrency, b.Requests = 5, 75
	dirs, runs := together(t, s, a, b)
	runs[0].Mark(report.MarkPartial)
	runs[0].Config[fallbackKey] = "of a generator in a sandbox"
	if err := report.WriteRun(dirs[0], runs[0]); err != nil {
		t.Fatal(err)
	}

	out := filepath.Join(t.TempDir(), "merged")
	run, err := Merge(dirs, out, "both", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Check(out); err != nil {
		t.Errorf("check: %v", err)
	}
	var ttft []float64
	requests, errs, good, most := 0, 0, 0, 0.0
	for i, d := range dirs {
		rows, _, err := report.ReadRows(d)
		if err != nil {
			t.Fatal(err)
		}
		for k := range rows {
			r := &rows[k]
			v, ok := r.TTFT()
			switch {
			case r.Phase != report.PhaseMeasured:
			case !r.OK():
				errs++
			case ok:
				requests++
				ttft = append(ttft, float64(v)/1e6)
				if v <= 3e6 {
					good++
				}
			}
		}
		most = max(most, *runs[i].Client.ScheduleDelayP99)
	}
	slices.Sort(ttft)
	w := run.Raw
	if w.Requests != requests || w.Errors != errs || requests+errs != 120 || run.Warmup.Requests+
		run.Warmup.Errors != 4 || *w.GoodRequests != good || *w.WrongTokens != 0 {
		t.Errorf("raw %+v, warm-up %+v; the parts have %d complete, %d failed, %d good", w, run.Warmup, requests, errs,
			good)
	}
	for _, c := range []struct{ got, want float64 }{
		{w.TTFT.P50, report.Quantile(ttft, .5)}, {w.TTFT.P99, report.Quantile(ttft, .99)},
		{w.TTFT.Max, ttft[len(ttft)-1]},
		{*w.RequestsPerS * (w.EndS - w.StartS), float64(requests)}, {*run.Client.ScheduleDelayP99, most},
		{run.Config["concurrency"].(float64), 8}, {run.Config["request_count"].(float64), 120},
		{run.Config["osl"].(float64), 20},
	} {
		if math.Abs(c.got-c.want) > 1e-6*max(1, c.want) {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	if n := runs[0].Raw.ICL.P50; w.ICL == nil || w.ICL.P50 < n/2 || w.ICL.Max < max(runs[0].Raw.ICL.Max,
		runs[1].Raw.ICL.Max)*.99 {
		t.Errorf("gaps %+v", w.ICL)
	}
	if run.Steady == nil || run.Steady.Requests == 0 || run.Steady.Requests > runs[0].Steady.Requests+
		runs[1].Steady.Requests || run.Steady.ICL != nil {
		t.Errorf("steady %+v", run.Steady)
	}
	if !run.Marked(report.MarkPartial) || run.Label != "both" || !strings.Contains(run.Client.Kind, ClientGoroutines) {
		t.Errorf("marks %v, label %q, client %+v", run.Marks, run.Label, run.Client)
	}
	if why := run.Config[fallbackKey]; why != "of a generator in a sandbox" {
		t.Errorf("why the client is another one: %v", why)
	}
	if n := len(run.Processes); n != 4 { // two generators, two worker processes
		t.Errorf("%d processes: %+v", n, run.Processes)
	}
	total := 0.0
	for _, r := range runs {
		total += *r.Raw.LoadgenCPU * float64(r.Raw.Requests)
	}
	// other seconds, so not the same; but not of another kind
	if got := *w.LoadgenCPU * float64(requests); got < total/5 || got > total*5 {
		t.Errorf("the generators used %v ms, merged %v", total, got)
	}
	if _, err := Merge(dirs, out, "", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a merged run overwrote another")
	}
}

// TestMergeRefuses: directories that are not one load are refused, with what is wrong.
func TestMergeRefuses(t *testing.T) {
	s := newServer(t, normal(0, 0))
	small := Config{Concurrency: 1, Requests: 3, OSL: 2, ISL: 2}
	other := small
	other.OSL = 3
	dirs, _ := together(t, s, small, other)
	later, _ := together(t, s, small)
	torn, _ := together(t, s, small)
	f, err := os.OpenFile(filepath.Join(torn[0], report.RowsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":"half`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, c := range []struct {
		dirs  []string
		want  string
		typed bool
	}{
		{dirs[:1], "two generators or more", false},
		{[]string{dirs[0], dirs[0]}, "hold the same run", true},
		{dirs, "was run with osl 2", true},
		{[]string{dirs[0], later[0]}, "did not run at the same time", true},
		{[]string{dirs[0], torn[0]}, "line 4", false},
		{[]string{dirs[0], t.TempDir()}, "run.json", false},
	} {
		out := filepath.Join(t.TempDir(), "out")
		_, err := Merge(c.dirs, out, "", slog.New(slog.DiscardHandler))
		var typed *MergeError
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &typed) != c.typed {
			t.Errorf("got %v, want %q", err, c.want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Error("a merge that was refused left a directory")
		}
	}
}

// TestFormats recomputes every figure that the other tools' formats hold from the rows, by those tools' definitions.
func TestFormats(t *testing.T) {
	s := newServer(t, func(s *server, c *call) {
		if c.n%10 == 9 {
			c.w.WriteHeader(503)
			return
		}
		normal(5*time.Millisecond, 4*time.Millisecond)(s, c)
	})
	dir := filepath.Join(t.TempDir(), "run")
	run, err := Run(t.Context(), Config{URL: redact.New(s.URL), Dir: dir, Concurrency: 4, Requests: 40, OSL: 6, ISL: 10,
		Label: "l", Goodput: report.SLO{Latency: time.Hour}, Settings: map[string]any{"request_rate": 0.0}})
	if err != nil {
		t.Fatal(err)
	}
	rows, _, err := report.ReadRows(dir)
	if err != nil {
		t.Fatal(err)
	}
	var ttft, tpot, e2el []float64
	first, last := math.Inf(1), 0.0
	for i := range rows {
		r := &rows[i]
		first, last = min(first, float64(r.Sent)), max(last, float64(r.End))
		if r.OK() {
			ttft = append(ttft, float64(r.First-r.Sent)/1e6)
			e2el = append(e2el, float64(r.Last-r.Sent)/1e6)
			tpot = append(tpot, (float64(r.Last-r.Sent)-float64(r.First-r.Sent))/5/1e6)
		}
	}
	mean := func(v []float64) (m float64) {
		for _, x := range v {
			m += x / float64(len(v))
		}
		return m
	}
	read := func(kind string) map[string]any {
		var b bytes.Buffer
		if err := WriteFormat(&b, kind, dir, run); err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(b.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	same := func(m map[string]any, key string, want float64) {
		t.Helper()
		var v any = m
		for k := range strings.SplitSeq(key, ".") {
			v = v.(map[string]any)[k]
		}
		if got, ok := v.(float64); !ok || math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
			t.Errorf("%s is %v, want %v", key, v, want)
		}
	}
	sec := (last - first) / 1e9
	v := read(FormatVLLM)
	for key, want := range map[string]float64{
		"completed": 36, "failed": 4, "num_prompts": 40, "max_concurrency": 4, "duration": sec,
		"total_input_tokens": 360, "total_output_tokens": 216,
		"request_throughput": 36 / sec, "output_throughput": 216 / sec, "total_token_throughput": 576 / sec,
		"request_goodput": 36 / sec,
		"mean_ttft_ms":    mean(ttft), "mean_tpot_ms": mean(tpot), "mean_e2el_ms": mean(e2el),
		"mean_itl_ms": run.Raw.ICL.Avg,
		"p99_ttft_ms": slices.Max(ttft), "p99_e2el_ms": slices.Max(e2el), "median_itl_ms": run.Raw.ICL.P50,
	} {
		same(v, key, want)
	}
	if v["request_rate"] != "inf" || v["model_id"] != "mock-model" || v["label"] != "l" {
		t.Errorf("rate %v, model %v, label %v", v["request_rate"], v["model_id"], v["label"])
	}
	a := read(FormatAIPerf)
	for key, want := range map[string]float64{
		"request_count.avg": 36, "error_request_count.avg": 4, "benchmark_duration.avg": sec,
		"request_throughput.avg": 36 / sec, "output_token_throughput.avg": 216 / sec,
		"time_to_first_token.avg": mean(ttft), "time_to_first_token.max": slices.Max(ttft),
		"time_to_first_token.min": slices.Min(ttft), "time_to_first_token.count": 36,
		"request_latency.avg": mean(e2el), "inter_token_latency.avg": mean(tpot), "output_sequence_length.p50": 6,
		"inter_chunk_latency.avg": run.Raw.ICL.Avg,
		"goodput.avg":             36 / sec, "good_request_count.avg": 36,
	} {
		same(a, key, want)
	}
	if a["was_cancelled"] != false || a["benchmark_id"] != run.ID ||
		a["time_to_first_token"].(map[string]any)["unit"] != "ms" {
		t.Errorf("aiperf: %v", a)
	}
	if start, err := time.Parse(time.RFC3339Nano, a["start_time"].(string)); err != nil ||
		time.Since(start) > time.Minute {
		t.Errorf("start_time %v %v", a["start_time"], err)
	}
	if err := WriteFormat(&bytes.Buffer{}, "csv", dir, run); err == nil {
		t.Error("no error for an unknown format")
	}
}
