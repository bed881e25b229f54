package loadgen

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// Formats of a run's figures, beside the table.
const (
	FormatTable  = "table"
	FormatVLLM   = "vllm"   // the keys of `vllm bench serve --save-result`
	FormatAIPerf = "aiperf" // the keys of aiperf's profile_export_aiperf.json
)

// Formats are all of them.
func Formats() []string { return []string{FormatTable, FormatVLLM, FormatAIPerf} }

// WriteFormat prints a run as a JSON object with the keys that the scripts of another tool read, computed by that
// tool's definitions from the rows of the measured phase. What we do not measure is absent. dir is the run directory,
// whose rows are read.
func WriteFormat(w io.Writer, kind, dir string, run *report.Run) error {
	rows, bad, err := report.ReadRows(dir)
	if err != nil {
		return err
	}
	if len(bad) > 0 {
		return bad[0]
	}
	f := newForeign(run, rows)
	var out map[string]any
	switch kind {
	case FormatVLLM:
		out = f.vllm()
	case FormatAIPerf:
		out = f.aiperf()
	default:
		return fmt.Errorf("format %q is not known: use one of %v", kind, Formats())
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// foreign is a run as other tools look at it: figures over the complete requests of the measured phase.
type foreign struct {
	run                                *report.Run
	n, failed                          int
	seconds                            float64
	output                             int64
	counted                            bool // every complete request said how many tokens it had
	ttft, itl, latency, osl, perUserTS []float64
}

func newForeign(run *report.Run, rows []report.Row) *foreign {
	f := &foreign{run: run, counted: true}
	if span, ok := report.RawSpan(rows); ok {
		f.seconds = float64(span.End-span.Start) / 1e9
	}
	for i := range rows {
		r := &rows[i]
		if r.Phase != report.PhaseMeasured || r.Ended == report.EndCanceled {
			continue
		}
		if !r.OK() {
			f.failed++
			continue
		}
		f.n++
		if r.OutputTokens == report.Absent {
			f.counted = false
		} else {
			f.output += int64(r.OutputTokens)
			f.osl = append(f.osl, float64(r.OutputTokens))
		}
		if v, ok := r.TTFT(); ok {
			f.ttft = append(f.ttft, float64(v)/1e6)
			f.latency = append(f.latency, float64(r.Last-r.Sent)/1e6)
		}
		// both divide by all tokens but one, however many came with the first chunk
		if r.First >= 0 && r.Last >= 0 && r.OutputTokens > 1 {
			v := float64(r.Last-r.First) / float64(r.OutputTokens-1)
			f.itl = append(f.itl, v/1e6)
			if v > 0 {
				f.perUserTS = append(f.perUserTS, 1e9/v)
			}
		}
	}
	for _, v := range [][]float64{f.ttft, f.itl, f.latency, f.osl, f.perUserTS} {
		slices.Sort(v)
	}
	return f
}

// setting is a number of the run's config.
func (f *foreign) setting(name string) float64 {
	switch v := f.run.Config[name].(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case int64:
		return float64(v)
	}
	return 0
}

// input is how many input tokens the complete requests asked for. What the server's tokenizer makes of them is not
// known here.
func (f *foreign) input() float64 { return f.setting("isl") * float64(f.n) }

func (f *foreign) rate(v float64) float64 {
	if f.seconds <= 0 {
		return 0
	}
	return v / f.seconds
}

// vllm makes the keys of vLLM: its TPOT is our ITL (a mean per request), its ITL our chunk gaps, its E2EL our latency.
func (f *foreign) vllm() map[string]any {
	out := map[string]any{
		"date": f.started().Format("20060102-150405"), "endpoint_type": "openai-chat", "backend": "openai-chat",
		"label":    f.run.Label,
		"model_id": f.run.Config["model"], "num_prompts": int(f.setting("request_count")), "request_rate": any("inf"),
		"max_concurrency": int(f.setting("concurrency")),
		"duration":        f.seconds, "completed": f.n, "failed": f.failed, "total_input_tokens": int64(f.input()),
		"request_throughput": f.rate(float64(f.n)), "request_goodput": nil,
	}
	if rate := f.setting("request_rate"); rate > 0 {
		out["request_rate"] = rate
		if f.run.Config["arrival_pattern"] == Poisson {
			out["burstiness"] = 1.0
		}
	}
	if f.counted {
		out["total_output_tokens"], out["output_throughput"] = f.output, f.rate(float64(f.output))
		out["total_token_throughput"] = f.rate(f.input() + float64(f.output))
	}
	if w := f.run.Raw; w != nil && w.GoodputRequests != nil {
		out["request_goodput"] = *w.GoodputRequests
	}
	stats := func(name string, sorted []float64) {
		if len(sorted) == 0 {
			return
		}
		mean, std := moments(sorted, 0)
		out["mean_"+name+"_ms"], out["median_"+name+"_ms"], out["std_"+name+"_ms"] = mean, report.Quantile(sorted, .5),
			std
		for _, p := range []int{50, 90, 95, 99} {
			out[fmt.Sprintf("p%d_%s_ms", p, name)] = report.Quantile(sorted, float64(p)/100)
		}
	}
	stats("ttft", f.ttft)
	stats("tpot", f.itl)
	stats("e2el", f.latency)
	if w := f.run.Raw; w != nil && w.ICL != nil {
		d := w.ICL
		for key, v := range map[string]float64{"mean": d.Avg, "median": d.P50, "std": d.Std, "p50": d.P50, "p90": d.P90,
			"p95": d.P95, "p99": d.P99} {
			out[key+"_itl_ms"] = v
		}
	}
	return out
}

// aiperfSchema is the version of aiperf's export whose keys these are.
const aiperfSchema = "1.5"

// aiperf makes the keys of aiperf, whose inter_token_latency is ours and whose inter_chunk_latency are our chunk gaps.
func (f *foreign) aiperf() map[string]any {
	out := map[string]any{
		"schema_version": aiperfSchema, "benchmark_id": f.run.ID,
		"start_time":    f.started().UTC().Format(time.RFC3339Nano),
		"end_time":      f.started().Add(f.rawEnd()).UTC().Format(time.RFC3339Nano),
		"was_cancelled": f.run.Marked(report.MarkPartial), "input_config": f.run.Config,
	}
	scalar := func(name, unit string, v float64) { out[name] = map[string]any{"unit": unit, "avg": v} }
	scalar("request_count", "requests", float64(f.n))
	scalar("error_request_count", "requests", float64(f.failed))
	scalar("benchmark_duration", "sec", f.seconds)
	scalar("request_throughput", "requests/sec", f.rate(float64(f.n)))
	if f.counted {
		scalar("output_token_throughput", "tokens/sec", f.rate(float64(f.output)))
		scalar("total_output_tokens", "tokens", float64(f.output))
	}
	if w := f.run.Raw; w != nil && w.GoodRequests != nil {
		scalar("good_request_count", "requests", float64(*w.GoodRequests))
		scalar("goodput", "requests/sec", f.rate(float64(*w.GoodRequests)))
	}
	stats := func(name, unit string, sorted []float64) {
		if len(sorted) == 0 {
			return
		}
		mean, std := moments(sorted, 1)
		m := map[string]any{"unit": unit, "avg": mean, "min": sorted[0], "max": sorted[len(sorted)-1], "std": std,
			"count": len(sorted), "sum": mean * float64(len(sorted))}
		for _, p := range []int{1, 5, 10, 25, 50, 75, 90, 95, 99} {
			m[fmt.Sprintf("p%d", p)] = report.Quantile(sorted, float64(p)/100)
		}
		out[name] = m
	}
	stats("time_to_first_token", "ms", f.ttft)
	stats("inter_token_latency", "ms", f.itl)
	stats("request_latency", "ms", f.latency)
	stats("output_sequence_length", "tokens", f.osl)
	stats("output_token_throughput_per_user", "tokens/sec/user", f.perUserTS)
	if w := f.run.Raw; w != nil && w.ICL != nil {
		d := w.ICL
		out["inter_chunk_latency"] = map[string]any{"unit": "ms", "avg": d.Avg, "min": d.Min, "max": d.Max,
			"std": d.Std, "p50": d.P50, "p90": d.P90, "p95": d.P95, "p99": d.P99}
	}
	return out
}

// started is the run's start, zero when run.json does not say it right.
func (f *foreign) started() time.Time {
	t, _ := time.Parse(time.RFC3339, f.run.StartedAt)
	return t
}

func (f *foreign) rawEnd() time.Duration {
	if f.run.Raw == nil {
		return 0
	}
	return time.Duration(f.run.Raw.EndS * float64(time.Second))
}

// moments are the mean and the standard deviation of values, with less degrees of freedom (1 for that of a sample).
func moments(v []float64, less int) (mean, std float64) {
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	for _, x := range v {
		std += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(std / float64(max(len(v)-less, 1)))
}
