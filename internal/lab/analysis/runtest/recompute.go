package runtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// line is a row as it stands in the file. Nothing here uses the code that it is to check: not the reader, not the
// windows, not the percentiles.
type line struct {
	Phase     string   `json:"phase"`
	Intended  *float64 `json:"intended_ns"`
	Sent      *float64 `json:"sent_ns"`
	First     *float64 `json:"first_ns"`
	Last      *float64 `json:"last_ns"`
	End       *float64 `json:"end_ns"`
	Ended     string   `json:"end"`
	ErrorType string   `json:"error_type"`
	Tokens    *float64 `json:"output_tokens"`
	Chunks    float64  `json:"chunks"`
	Wrong     *float64 `json:"wrong"`
	Process   string   `json:"process"`
}

// Recompute computes from requests.jsonl what run.json says of its windows, by the definitions in plain words, and
// returns the figures by their place in run.json ("raw.ttft_ms.p99"). The steady window's ends are run.json's: when
// load stopped being held is not in the rows.
func Recompute(dir string) (map[string]float64, error) {
	f, err := os.Open(filepath.Join(dir, report.RowsFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []line
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var l line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	var ends struct {
		Steady *struct {
			Start float64 `json:"start_s"`
			End   float64 `json:"end_s"`
		} `json:"steady"`
	}
	b, err := os.ReadFile(filepath.Join(dir, report.RunFile))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &ends); err != nil {
		return nil, err
	}
	out := map[string]float64{}
	begin, end := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		if l.Phase == "measured" {
			begin, end = min(begin, l.start()), max(end, l.start(), deref(l.End, l.start()))
		}
	}
	window("raw", lines, begin/1e9, end/1e9, out)
	if ends.Steady != nil {
		window("steady", lines, ends.Steady.Start, ends.Steady.End, out)
	}
	return out, nil
}

func (l line) start() float64 { return deref(l.Sent, deref(l.Intended, 0)) }

func deref(p *float64, def float64) float64 {
	if p == nil {
		return def
	}
	return *p
}

func window(name string, lines []line, from, to float64, out map[string]float64) {
	var ttft, itl, lat, eff []float64
	add := func(key string, v float64) { out[name+"."+key] += v }
	for _, zero := range []string{"requests", "errors", "chunks"} {
		add(zero, 0)
	}
	out[name+".start_s"], out[name+".end_s"] = from, to
	for _, l := range lines {
		// Half a nanosecond of room: the window's ends are seconds with a fraction.
		if l.Phase != "measured" || l.start()/1e9 < from-5e-10 || l.start()/1e9 > to+5e-10 {
			continue
		}
		if l.Wrong != nil {
			add("wrong_tokens", *l.Wrong)
			add("audited", 1)
		}
		switch l.Ended {
		case "canceled":
			add("canceled", 1)
		case "complete":
			add("requests", 1)
			add("chunks", l.Chunks)
			if l.Tokens != nil {
				add("output_tokens", *l.Tokens)
			}
			if l.First != nil {
				ttft, lat = append(ttft, (*l.First-*l.Sent)/1e6), append(lat, (*l.Last-*l.Sent)/1e6)
				if l.Tokens != nil && *l.Tokens > 1 {
					itl = append(itl, (*l.Last-*l.First)/1e6/(*l.Tokens-1))
				}
			}
			eff = append(eff, (*l.End-*l.Intended)/1e6)
		default:
			add("errors", 1)
			add("errors_by_type."+l.ErrorType, 1)
		}
	}
	if to > from {
		out[name+".requests_per_s"] = out[name+".requests"] / (to - from)
		out[name+".output_tokens_per_s"] = out[name+".output_tokens"] / (to - from)
	}
	for _, d := range []struct {
		key string
		v   []float64
	}{{"ttft_ms", ttft}, {"itl_ms", itl}, {"latency_ms", lat}, {"effective_latency_ms", eff}} {
		dist(name+"."+d.key, d.v, out)
	}
}

func dist(key string, v []float64, out map[string]float64) {
	if len(v) == 0 {
		return
	}
	sort.Float64s(v)
	sum, squares := 0.0, 0.0
	for _, x := range v {
		sum += x
	}
	avg := sum / float64(len(v))
	for _, x := range v {
		squares += (x - avg) * (x - avg)
	}
	out[key+".avg"], out[key+".std"] = avg, math.Sqrt(squares/float64(len(v)))
	out[key+".min"], out[key+".max"] = v[0], v[len(v)-1]
	for perMille, q := range map[int]string{500: "p50", 900: "p90", 950: "p95", 990: "p99", 999: "p99_9"} {
		i := 0
		for (i+1)*1000 < perMille*len(v) { // the first that enough values do not exceed
			i++
		}
		out[key+"."+q] = v[i]
	}
}

// Disagreements lists where run.json differs from Recompute by more than rounding.
func Disagreements(dir string) (bad []string, compared int, err error) {
	want, err := Recompute(dir)
	if err != nil {
		return nil, 0, err
	}
	b, err := os.ReadFile(filepath.Join(dir, report.RunFile))
	if err != nil {
		return nil, 0, err
	}
	var tree map[string]any
	if err := json.Unmarshal(b, &tree); err != nil {
		return nil, 0, err
	}
	got := map[string]float64{}
	for _, w := range []string{"raw", "steady"} {
		numbers(w, tree[w], got)
	}
	for k, v := range want {
		g, ok := got[k]
		if !ok && v == 0 {
			continue // a count of nothing may be absent
		}
		compared++
		if !ok || math.Abs(g-v) > 1e-9*math.Abs(v)+1e-9 {
			bad = append(bad, fmt.Sprintf("%s is %v (%v), recomputed %v", k, g, ok, v))
		}
	}
	sort.Strings(bad)
	return bad, compared, nil
}

func numbers(at string, v any, out map[string]float64) {
	switch v := v.(type) {
	case float64:
		out[at] = v
	case map[string]any:
		for k, w := range v {
			numbers(at+"."+k, w, out)
		}
	}
}
