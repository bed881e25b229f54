package report

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var dataElement = regexp.MustCompile(`<data data-f="([^"]*)" value="([^"]*)">`)

// pageOf reads report.html of a run directory and the numbers on it, by their place in run.json.
func pageOf(t *testing.T, dir string) (string, map[string]string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, HTMLFile))
	if err != nil {
		t.Fatal(err)
	}
	figs := map[string]string{}
	for _, m := range dataElement.FindAllStringSubmatch(string(b), -1) {
		path, value := html.UnescapeString(m[1]), html.UnescapeString(m[2])
		if have, ok := figs[path]; ok && have != value {
			t.Errorf("%s is %s and %s on the same page", path, have, value)
		}
		figs[path] = value
	}
	return string(b), figs
}

// leaves lists the numbers of a JSON tree by path.
func leaves(prefix string, v any, out map[string]float64) {
	switch v := v.(type) {
	case float64:
		out[prefix] = v
	case map[string]any:
		for k, w := range v {
			leaves(strings.TrimPrefix(prefix+"."+k, "."), w, out)
		}
	case []any:
		for i, w := range v {
			leaves(prefix+"."+strconv.Itoa(i), w, out)
		}
	}
}

// fillAll gives a run every figure that there is.
func fillAll(run *Run) {
	f := func(v float64) *float64 { return &v }
	n := func(v int64) *int64 { return &v }
	for i, w := range []*Window{run.Raw, run.Steady} {
		w.GoodRequests, w.GoodputRequests, w.MachineBusy, w.Canceled = Ptr(2+i), f(1.25), f(.75), 1
		w.ErrorsByType = map[string]int{"timeout": 1, "<b>": 2 + i}
	}
	run.Warmup = &Warmup{Requests: 3, Errors: 1, WrongTokens: n(0), ErrorsByType: map[string]int{"lost": 1}}
	run.Errors = []ErrorKind{{End: EndFailed, Status: 503, Type: "timeout", Message: `<i>"no"</i>`, Count: 2}}
	run.UDP.SteadyDatagramsPerToken = f(.07)
	run.UDP.Sockets = []UDPSocket{{Port: 4001, Lane: Ptr(0), Drops: n(12)}, {Port: 4002, Lane: Ptr(1), Drops: n(0)}}
	run.Plane.Lanes = []Lane{{Process: "worker-0", Lane: 0, Streams: n(7), Bytes: n(12345678)}}
	run.Processes = []Process{
		{Role: "worker", Name: "worker-0", CPUSeconds: f(1.5), RSSPeak: n(3 << 20), Requests: Ptr(2),
			MeanFirstResponse: f(10.25), Holder: Ptr(true),
			MetricFirstResponse: f(9.125), MetricResponses: n(5), GOMAXPROCS: Ptr(3)},
		{Role: "loadgen", Name: "loadgen"},
	}
	run.Client = Client{Limited: true, ScheduleDelayP99: f(7.5), Kind: "epoll", Tick: f(1)}
}

// empties lists the fields of a run that hold nothing.
func empties(at string, v reflect.Value) (out []string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if v.Kind() != reflect.Pointer && v.Len() == 0 || v.Kind() == reflect.Pointer && v.IsNil() {
			return []string{at}
		}
		if v.Kind() == reflect.Pointer {
			return empties(at, v.Elem())
		}
		if v.Kind() == reflect.Slice && v.Index(0).Kind() == reflect.Struct {
			return empties(at, v.Index(0))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out = append(out, empties(at+"."+v.Type().Field(i).Name, v.Field(i))...)
		}
	}
	return out
}

// TestPageHoldsEveryNumber compares page and run.json both ways: each number on the page is the one in run.json, and
// each number of run.json that is a result is on the page.
func TestPageHoldsEveryNumber(t *testing.T) {
	dir, run := fullRun(t, "quic")
	steady := *run.Raw
	steady.StartS, steady.EndS = 0.0005, 1
	run.Steady = &steady
	fillAll(run)
	for _, part := range []any{run.Raw, run.Steady, run.Warmup, run.Errors[0], run.UDP, run.Plane, run.Processes[0],
		run.Client, run.Holders, run.HoldersReference} {
		for _, e := range empties(fmt.Sprintf("%T", part), reflect.ValueOf(part)) {
			t.Errorf("the test's run has nothing in %s: a new field must be filled in here, and shown on the page", e)
		}
	}
	if err := WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, RunFile))
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{}
	leaves("", tree, want)
	_, got := pageOf(t, dir)
	compared := 0
	for path, s := range got {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			continue // client.kind, client.limited
		}
		if w, ok := want[path]; !ok || w != v {
			t.Errorf("the page says %s = %v, run.json %v (%v)", path, v, w, ok)
		}
		compared++
	}
	for path, v := range want {
		if strings.HasPrefix(path, "config.") || strings.HasPrefix(path, "environment.") {
			continue // shown as text, see the next test
		}
		if _, ok := got[path]; !ok {
			t.Errorf("%s = %v of run.json is not on the page", path, v)
		}
	}
	if compared < 120 {
		t.Errorf("%d numbers on the page, expected well over 100", compared)
	}
	if got["client.limited"] != "true" || got["client.kind"] != "epoll" {
		t.Errorf("client %q %q", got["client.limited"], got["client.kind"])
	}
}

func TestPageSaysEveryInputAndEscapes(t *testing.T) {
	dir, run := fullRun(t, "quic")
	evil := `"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;`
	run.Label, run.Config["model"], run.Config["note"] = evil, evil, []any{"a", evil}
	run.Config["big"], run.Config["off"], run.Config["none"] = 2.5e8, false, ""
	run.Environment.Pins = map[string]string{evil: "0"}
	run.Environment.Sockets = []Socket{{Process: evil, Role: "lane", Port: 40123, RecvAsked: Ptr(int64(8388608)),
		GRO: Ptr(true)}}
	run.Environment.Settings = []Setting{{Process: evil, Role: "worker", Name: "quic-gro", Asked: "on",
		InForce: "on 1 of 2 sockets"}}
	run.Processes = append(run.Processes, Process{Role: "worker", Name: evil, Requests: Ptr(1),
		MeanFirstResponse: Ptr(3.0)})
	run.Raw.ErrorsByType = map[string]int{evil: 1}
	run.Marks = []string{evil, MarkNotSteady}
	run.UDP.Sockets = nil
	if err := WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	page, _ := pageOf(t, dir)
	for _, bad := range []string{"<script", "<img", "onerror=alert(1)>&amp;<", "http://", "https://", "url("} {
		if strings.Contains(strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), bad) {
			t.Errorf("%q is on the page", bad)
		}
	}
	unescaped := html.UnescapeString(page)
	if n := strings.Count(unescaped, evil); n < 9 {
		t.Errorf("the label, model, note, pin, socket, setting, process, error type and mark stand on the page %d times", n)
	}
	for key := range run.Config {
		if !strings.Contains(page, "<dt>"+key+"</dt>") {
			t.Errorf("the input %s is not on the page", key)
		}
	}
	for _, want := range []string{"<dd>250000000</dd>", "<dd>false</dd>", "<dd>(empty)</dd>", "8388608", "40123",
		"on 1 of 2 sockets", "the busiest 2 s hold over 3 times", "GRO was on", "abc"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

// TestAbsentIsNeverZero takes away all that a run need not have: the page says "not measured" and shows no number for
// it.
func TestAbsentIsNeverZero(t *testing.T) {
	dir, run := fullRun(t, "")
	run.Raw.FrontendCPU, run.Raw.WorkerCPU, run.Raw.WrongTokens, run.Raw.RequestsPerS, run.Raw.TTFT,
		run.Client.ScheduleDelayP99 = nil, nil, nil, nil, nil, nil
	run.Processes = []Process{{Role: "worker", Name: "w"}}
	if err := WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	page, figs := pageOf(t, dir)
	for _, path := range []string{"raw.frontend_cpu_ms_per_request", "raw.worker_cpu_ms_per_request",
		"raw.wrong_tokens", "raw.requests_per_s", "raw.ttft_ms.p50", "holders",
		"client.schedule_delay_p99_ms", "client.tick_ms", "processes.0.cpu_s", "processes.0.requests",
		"processes.0.metric_first_response_ms", "processes.0.gomaxprocs",
		"udp.rcvbuf_errors"} {
		if v, ok := figs[path]; ok {
			t.Errorf("%s was not measured, the page says %s", path, v)
		}
	}
	if n := strings.Count(page, "not measured"); n < 8 {
		t.Errorf("\"not measured\" stands %d times on the page", n)
	}
	// The same in run.json: what this change added is left out.
	text, err := os.ReadFile(filepath.Join(dir, RunFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"metric_first_response_ms", "metric_responses", "gomaxprocs", "cpu_s",
		"rss_peak_bytes"} {
		if strings.Contains(string(text), `"`+key+`"`) {
			t.Errorf("%s was not measured and stands in run.json", key)
		}
	}
}

// TestPageIsLoud holds that what spoils a run stands at the top, and that a clean run says that it is.
func TestPageIsLoud(t *testing.T) {
	dir, run := fullRun(t, "tcp")
	run.Steady, run.Raw.Errors, run.Raw.ErrorsByType = nil, 1, map[string]int{"timeout": 1}
	top := func() string {
		t.Helper()
		if err := WriteRun(dir, run); err != nil {
			t.Fatal(err)
		}
		page, _ := pageOf(t, dir)
		head, _, ok := strings.Cut(page, `<section id="headline">`)
		if !ok {
			t.Fatal("no headline")
		}
		if !strings.Contains(page, "There is no steady window") {
			t.Error("a run without a steady window does not say so")
		}
		return html.UnescapeString(head)
	}
	if s := top(); !strings.Contains(s, "Not valid:</b> 1 of 3 requests failed") || strings.Contains(s, "No mark:") {
		t.Errorf("a run with errors: %s", s)
	}
	run.Raw.Errors, run.Raw.ErrorsByType = 0, nil
	if s := top(); !strings.Contains(s, "No mark:") || strings.Contains(s, `role="alert"`) {
		t.Errorf("a clean run: %s", s)
	}
	for _, m := range []string{MarkNotSteady, MarkClientLimited, MarkMachineLimited, MarkSharedCores, MarkPartial,
		MarkNoProof, MarkBundled, MarkNoUsage} {
		run.Marks = []string{m}
		if MarkMeaning(m) == "" {
			t.Errorf("nobody says what %s means", m)
		}
		if s := top(); !strings.Contains(s, "<b>"+m+":</b> "+MarkMeaning(m)) || strings.Contains(s, "No mark:") {
			t.Errorf("%s is not loud: %s", m, s)
		}
	}
	run.Marks = []string{}
	run.Plane.PlaneRecords = map[string]int64{"tcp": 22, "quic": 5}
	run.Environment.Pins = map[string]string{"loadgen": "2-3,9", "frontend": "0,3"}
	run.Environment.Revision, run.StartedAt = "", "2026-01-02T03:04:05"
	run.Processes = []Process{{Name: "a", GOMAXPROCS: Ptr(2)}, {Name: "b", GOMAXPROCS: Ptr(1)}}
	s := top()
	for _, want := range []string{"the plane quic carried 5 records in a run over tcp", "pinned to the same cores: 3",
		"which source revision", "not a time with an offset",
		"2 processes may run Go code on 3 threads at once (sum of GOMAXPROCS), there are 2 cores for them"} {
		if !strings.Contains(s, want) {
			t.Errorf("%q is not at the top: %s", want, s)
		}
	}
}

func TestTransit(t *testing.T) {
	run := func(plane string, tokens int64, records map[string]int64) *Run {
		return &Run{Config: map[string]any{"response_plane": plane}, Raw: &Window{OutputTokens: &tokens},
			Plane: &Plane{PlaneRecords: records}}
	}
	for _, c := range []struct {
		run  *Run
		want string
	}{
		{run("tcp", 10, map[string]int64{"tcp": 12, "quic": 0}), ""},
		{run("tcp", 10, map[string]int64{"tcp": 9}), "carried 9 records, the requests have 10 tokens"},
		{run("tcp", 10, map[string]int64{"tcp": 12, "quic": 1}), "the plane quic carried 1 records"},
		{run("quic", 10, map[string]int64{"tcp": 12}), "the plane quic carried 0 records"},
		{run("quic", 10, nil), "no counter says"},
		{run("", 10, nil), ""},
	} {
		if got := c.run.TransitError(); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%v: %q, want %q", c.run.Plane.PlaneRecords, got, c.want)
		}
	}
}

func TestBadRowsAreOnThePage(t *testing.T) {
	dir, run := fullRun(t, "")
	f, err := os.OpenFile(filepath.Join(dir, RowsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		fmt.Fprintln(f, `{"id":"<i>cut`)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	page, _ := pageOf(t, dir)
	if !strings.Contains(page, "30 bad rows in requests.jsonl") || !strings.Contains(page, "requests.jsonl line 4: ") ||
		!strings.Contains(page, "and 10 more") {
		t.Error("the page does not count the bad rows")
	}
	if err := os.Remove(filepath.Join(dir, RowsFile)); err != nil {
		t.Fatal(err)
	}
	if err := WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	if page, _ = pageOf(t, dir); !strings.Contains(page, "requests.jsonl is not in this folder") {
		t.Error("the page does not say that it has no rows")
	}
}

func TestCurveIsExact(t *testing.T) {
	for _, n := range []int{1, 2, 10, 1000, 100_000} {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64((i*7919)%n + 1) // 1..n in some order
		}
		got := Curve(v)
		if len(got) > 300 || got[0].Y != 1 {
			t.Errorf("%d values: %d points, the first at %v", n, len(got), got[0])
		}
		for _, p := range got {
			if want := max(1, math.Ceil(p.X*float64(n)-1e-6)); p.Y != want {
				t.Errorf("%d values: share %v is %v, want %v", n, p.X, p.Y, want)
			}
		}
		if last := got[len(got)-1]; n > 1 && 1-last.X > 1.1/float64(n)*1.05+.02 {
			t.Errorf("%d values: the curve ends at %v", n, last.X)
		}
	}
	if Curve(nil) != nil {
		t.Error("a curve of nothing")
	}
}

func TestSeriesReadsBack(t *testing.T) {
	dir := t.TempDir()
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, TimeseriesFile), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rows := []Row{row(1, 100, 50, 2000, 5), row(2, 900, 400, 100, 5), failed(3, 1500, "x")}
	want := Series(rows, []int64{3, 4})
	want[1].Busy = Ptr(.5)
	write(string(AppendCSV(nil, want)))
	got, err := ReadSeries(dir)
	if err != nil || string(AppendCSV(nil, got)) != string(AppendCSV(nil, want)) || got[0].Busy != nil {
		t.Errorf("%v, %v", got, err)
	}
	for text, complaint := range map[string]string{"a,b\n1,2\n": "its columns are", csvHeader +
		"0,1,x,0,0,0,,,,,,\n": "line 2", csvHeader + "0,1\n": "wrong number of fields"} {
		write(text)
		if _, err := ReadSeries(dir); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%q: %v, want %q", text, err, complaint)
		}
	}
}
