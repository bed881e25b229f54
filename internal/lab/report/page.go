package report

import (
	"encoding/json"
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/chart"
)

// listed bounds the lines of a table on the page; run.json has all. Thousands of lanes are no reading.
const listed = 256

// page is what the template shows.
type page struct {
	Title, ID, StartedAt, What, WindowSaid, TimeSaid, HoldersSaid, GROSaid, DropsSaid string
	CSS                                                                               template.CSS
	Invalid, Notices, BadSaid                                                         []string
	Marks                                                                             []markItem
	Clean, RowsMissing                                                                bool
	Tiles                                                                             []tile
	Windows                                                                           []windowPage
	Warmup, Holders, UDP, Plane, Client                                               []figItem
	Curves, TimePlots                                                                 []template.HTML
	LoadPlot, DropPlot                                                                template.HTML
	Errors                                                                            []errorLine
	Said                                                                              []saidLine
	BadRows                                                                           int
	Processes                                                                         []processLine
	DropTable                                                                         []dropLine
	Lanes                                                                             []laneLine
	ProcessesLeft, SocketsLeft, LanesLeft, EnvSocketsLeft                             string
	Inputs, Environment                                                               []input
	SocketHeads, SettingHeads                                                         []string
	Sockets, Settings                                                                 [][]string
}

type markItem struct{ Name, Why string }

// fig is a number of run.json on the page: Path names it there, Exact is its value, Text is how it reads; Text is empty
// when it was not measured.
type fig struct{ Path, Exact, Text string }

type figItem struct {
	Name string
	Fig  fig
}

type tile struct {
	Name, Unit string
	Fig        fig
	Bad        bool
}

type windowPage struct {
	Name, Why string
	Heads     []string
	Dists     []distLine
	Plain     []figItem
}

type distLine struct {
	Name string
	Figs []fig
}

type errorLine struct {
	Type                string
	Raw, Steady, Warmup fig
}

// saidLine is a kind of failure with what was said of it.
type saidLine struct {
	End, Type, Message string
	Status, Count      fig
}

type processLine struct {
	Name, Role                                        string
	CPU, RSS, Requests, First, Metric, MetricN, Procs fig
	Holder                                            bool
}

type dropLine struct{ Port, Lane, Drops fig }

type laneLine struct {
	Process              string
	Lane, Streams, Bytes fig
}

type input struct{ Name, Value string }

func floatFig(path string, p *float64, text func(float64) string) fig {
	if p == nil {
		return fig{}
	}
	return fig{path, strconv.FormatFloat(*p, 'g', -1, 64), text(*p)}
}

func intFig[T int | int64](path string, p *T) fig {
	if p == nil {
		return fig{}
	}
	s := strconv.FormatInt(int64(*p), 10)
	return fig{path, s, chart.Thousands(s)}
}

func decimals(n int) func(float64) string {
	return func(v float64) string { return chart.Thousands(strconv.FormatFloat(v, 'f', n, 64)) }
}

func msText(v float64) string { return chart.Thousands(ms(v)) }

func percent(v float64) string { return strconv.FormatFloat(v*100, 'f', 1, 64) + "%" }

func newPage(run *Run, c *curves, series []Second) *page {
	p := &page{
		Title: run.ID, ID: run.ID, StartedAt: run.StartedAt, CSS: template.CSS(chart.CSS + pageCSS),
		RowsMissing: c.missing, BadRows: c.bad.Count, Notices: run.Notices(),
	}
	if run.Label != "" {
		p.Title = run.Label
	}
	p.What = what(run)
	if err := run.Verdict(0); err != nil {
		p.Invalid = strings.Split(err.Error(), "\n")
	}
	for _, m := range run.Marks {
		p.Marks = append(p.Marks, markItem{m, markWhy[m]})
	}
	p.Clean = len(p.Marks) == 0 && len(p.Invalid) == 0
	for _, b := range c.bad.First {
		p.BadSaid = append(p.BadSaid, b.Error())
	}
	if left := c.bad.Count - len(c.bad.First); left > 0 && len(p.BadSaid) > 0 {
		p.BadSaid = append(p.BadSaid, fmt.Sprintf("and %d more", left))
	}
	p.headline(run)
	p.windows(run)
	p.errors(run)
	p.plots(run, c, series)
	p.processes(run)
	p.udp(run)
	p.plane(run)
	p.client(run)
	p.inputs(run)
	return p
}

// what says in a line what was measured.
func what(run *Run) string {
	var parts []string
	add := func(format, key string) {
		if v, ok := run.Config[key]; ok && v != nil && fmt.Sprint(v) != "" && fmt.Sprint(v) != "0" {
			parts = append(parts, fmt.Sprintf(format, plainValue(v)))
		}
	}
	add("plane %s", "response_plane")
	add("model %s", "model")
	add("%s open requests", "concurrency")
	add("%s requests/s asked for", "request_rate")
	add("%s input tokens", "isl")
	add("%s output tokens", "osl")
	add("%s workers", "workers")
	add("in %s processes", "worker_processes")
	return strings.Join(parts, ", ")
}

func (p *page) headline(run *Run) {
	w, at := run.Best(), "raw"
	if w != nil && w == run.Steady {
		at = "steady"
	}
	if w == nil {
		p.WindowSaid = "No measured request started."
		return
	}
	if at == "steady" {
		p.WindowSaid = fmt.Sprintf("Steady window, %.1f s to %.1f s: requests that started there. Errors and wrong "+
			"tokens are those of the whole run.", w.StartS, w.EndS)
	} else {
		p.WindowSaid = "There is no steady window: these are the figures of all measured requests. Their high " +
			"percentiles may be the opening burst."
	}
	dist := func(d *Dist, path string, of func(*Dist) *float64) fig {
		if d == nil {
			return fig{}
		}
		return floatFig(at+"."+path, of(d), msText)
	}
	p50, p99 := func(d *Dist) *float64 { return &d.P50 }, func(d *Dist) *float64 { return &d.P99 }
	p.Tiles = []tile{
		{Name: "requests/s", Fig: floatFig(at+".requests_per_s", w.RequestsPerS, decimals(1))},
		{Name: "TTFT p50", Unit: "ms", Fig: dist(w.TTFT, "ttft_ms.p50", p50)},
		{Name: "TTFT p99", Unit: "ms", Fig: dist(w.TTFT, "ttft_ms.p99", p99)},
		{Name: "ITL p50", Unit: "ms", Fig: dist(w.ITL, "itl_ms.p50", p50)},
		{Name: "ITL p99", Unit: "ms", Fig: dist(w.ITL, "itl_ms.p99", p99)},
		{Name: "latency p99", Unit: "ms", Fig: dist(w.Latency, "latency_ms.p99", p99)},
		{Name: "frontend CPU a request", Unit: "ms", Fig: floatFig(at+".frontend_cpu_ms_per_request", w.FrontendCPU,
			decimals(2))},
		{Name: "requests", Fig: intFig("raw.requests", &run.Raw.Requests)},
		{Name: "errors", Fig: intFig("raw.errors", &run.Raw.Errors), Bad: run.Raw.Errors > 0},
		{Name: "wrong tokens", Fig: intFig("raw.wrong_tokens", run.Raw.WrongTokens), Bad: run.Raw.WrongTokens != nil &&
			*run.Raw.WrongTokens > 0},
		{Name: "holders", Fig: intFig("holders", run.Holders)},
	}
	if run.Marked(MarkBundled) { // ITL alone would say nothing
		p.Tiles = append(p.Tiles, tile{Name: "chunk gap p50", Unit: "ms", Fig: dist(w.ICL, "icl_ms.p50", p50)},
			tile{Name: "chunk gap p99", Unit: "ms", Fig: dist(w.ICL, "icl_ms.p99", p99)})
	}
	if u := run.UDP; u != nil {
		p.Tiles = append(p.Tiles, tile{Name: "RcvbufErrors", Fig: intFig("udp.rcvbuf_errors", u.RcvbufErrors)})
	}
}

func (p *page) windows(run *Run) {
	for _, v := range []struct {
		w               *Window
		path, name, why string
	}{
		{run.Steady, "steady", "Steady",
			"Requests that started while load was held, past --steady-after. Compare these."},
		{run.Raw, "raw", "Raw", "All measured requests, the opening burst too."},
	} {
		if v.w != nil {
			p.Windows = append(p.Windows, windowOf(v.w, v.path, v.name, v.why))
		}
	}
	if w := run.Warmup; w != nil {
		p.Warmup = []figItem{{"requests", intFig("warmup.requests", &w.Requests)},
			{"errors", intFig("warmup.errors", &w.Errors)},
			{"wrong tokens", intFig("warmup.wrong_tokens", w.WrongTokens)}}
	}
}

func windowOf(w *Window, at, name, why string) windowPage {
	out := windowPage{Name: name, Why: why, Heads: []string{"avg", "min", "p50", "p90", "p95", "p99", "p99.9", "max",
		"std"}}
	for _, d := range []struct {
		name, path string
		d          *Dist
	}{{"TTFT", "ttft_ms", w.TTFT}, {"ITL", "itl_ms", w.ITL}, {"chunk gap", "icl_ms", w.ICL},
		{"latency", "latency_ms", w.Latency},
		{"effective latency", "effective_latency_ms", w.EffectiveLatency}} {
		line := distLine{Name: d.name}
		if d.d == nil {
			line.Figs = make([]fig, len(out.Heads))
		} else {
			for i, v := range []*float64{&d.d.Avg, &d.d.Min, &d.d.P50, &d.d.P90, &d.d.P95, &d.d.P99, &d.d.P999,
				&d.d.Max, &d.d.Std} {
				line.Figs = append(line.Figs, floatFig(at+"."+d.path+"."+distFields[i], v, msText))
			}
		}
		out.Dists = append(out.Dists, line)
	}
	f := func(name, field string, p *float64, text func(float64) string) {
		out.Plain = append(out.Plain, figItem{name, floatFig(at+"."+field, p, text)})
	}
	n := func(name string, v fig) { out.Plain = append(out.Plain, figItem{name, v}) }
	f("begins at (s)", "start_s", &w.StartS, decimals(3))
	f("ends at (s)", "end_s", &w.EndS, decimals(3))
	n("complete requests", intFig(at+".requests", &w.Requests))
	n("errors", intFig(at+".errors", &w.Errors))
	if w.Canceled > 0 {
		n("ended by the interrupt", intFig(at+".canceled", &w.Canceled))
	}
	n("wrong tokens", intFig(at+".wrong_tokens", w.WrongTokens))
	if w.Audited > 0 {
		n("verified responses", intFig(at+".audited", &w.Audited))
	}
	f("requests/s", "requests_per_s", w.RequestsPerS, decimals(2))
	f("output tokens/s", "output_tokens_per_s", w.OutputTokensPer, decimals(0))
	n("output tokens", intFig(at+".output_tokens", w.OutputTokens))
	n("content chunks", intFig(at+".chunks", &w.Chunks))
	if w.GoodRequests != nil {
		n("requests within --goodput", intFig(at+".good_requests", w.GoodRequests))
		f("goodput requests/s", "goodput_requests_per_s", w.GoodputRequests, decimals(2))
	}
	f("frontend CPU (ms/request)", "frontend_cpu_ms_per_request", w.FrontendCPU, decimals(3))
	f("worker CPU (ms/request)", "worker_cpu_ms_per_request", w.WorkerCPU, decimals(3))
	f("load generator CPU (ms/request)", "loadgen_cpu_ms_per_request", w.LoadgenCPU, decimals(3))
	f("machine busy", "machine_busy", w.MachineBusy, percent)
	return out
}

func (p *page) errors(run *Run) {
	types := map[string]bool{}
	of := func(m map[string]int) {
		for k := range m {
			types[k] = true
		}
	}
	var raw, steady, warm map[string]int
	if run.Raw != nil {
		raw = run.Raw.ErrorsByType
	}
	if run.Steady != nil {
		steady = run.Steady.ErrorsByType
	}
	if run.Warmup != nil {
		warm = run.Warmup.ErrorsByType
	}
	of(raw)
	of(steady)
	of(warm)
	for _, k := range keys(types) {
		one := func(m map[string]int, at string) fig {
			n, ok := m[k]
			if !ok {
				return fig{}
			}
			return intFig(at+".errors_by_type."+k, &n)
		}
		p.Errors = append(p.Errors, errorLine{k, one(raw, "raw"), one(steady, "steady"), one(warm, "warmup")})
	}
	for i := range run.Errors {
		e, at := &run.Errors[i], "errors."+strconv.Itoa(i)
		l := saidLine{End: e.End, Type: e.Type, Message: e.Message, Count: intFig(at+".count", &e.Count)}
		if e.Status != 0 {
			l.Status = fig{at + ".status", strconv.Itoa(e.Status), strconv.Itoa(e.Status)}
		}
		p.Said = append(p.Said, l)
	}
}

// inputs lists every setting and what is known of the environment.
func (p *page) inputs(run *Run) {
	for _, k := range keys(run.Config) {
		p.Inputs = append(p.Inputs, input{k, plainValue(run.Config[k])})
	}
	b, err := json.Marshal(run.Environment)
	if err != nil {
		return // it was read from JSON
	}
	var env map[string]any
	if json.Unmarshal(b, &env) != nil {
		return
	}
	delete(env, "sockets")
	delete(env, "settings")
	for _, k := range keys(env) {
		p.Environment = append(p.Environment, input{k, plainValue(env[k])})
	}
	p.SettingHeads = []string{"process", "setting", "asked", "in force"}
	for _, s := range run.Environment.Settings {
		p.Settings = append(p.Settings, []string{s.Process, s.Name, dash(s.Asked), dash(s.InForce)})
	}
	p.SocketHeads = []string{"process", "role", "port", "receive buffer asked", "granted", "send buffer asked",
		"granted", "GRO", "GSO"}
	for i, s := range run.Environment.Sockets {
		if i == listed {
			p.EnvSocketsLeft = fmt.Sprintf("%d more sockets are in run.json.", len(run.Environment.Sockets)-listed)
			break
		}
		p.Sockets = append(p.Sockets, []string{s.Process, s.Role, strconv.Itoa(s.Port), count(s.RecvAsked),
			count(s.RecvGranted), count(s.SendAsked), count(s.SendGranted),
			onOff(s.GRO), onOff(s.GSO)})
	}
}

// dash stands for an empty text.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func onOff(p *bool) string {
	switch {
	case p == nil:
		return "-"
	case *p:
		return "on"
	}
	return "off"
}

// plainValue is a setting as text: whole numbers without an exponent, lists one after the other.
func plainValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" {
			return "(empty)"
		}
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		if len(v) == 0 {
			return "(none)"
		}
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = plainValue(v[i])
		}
		return strings.Join(parts, ", ")
	case map[string]any:
		var parts []string
		for _, k := range keys(v) {
			parts = append(parts, k+" "+plainValue(v[k]))
		}
		return strings.Join(parts, ", ")
	}
	return fmt.Sprint(v)
}
