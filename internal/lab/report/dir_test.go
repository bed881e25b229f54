package report

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRowsRoundTrip(t *testing.T) {
	full := row(1, 1000, 5, 10, 3)
	full.Worker, full.Process, full.Lane, full.Retries, full.Wrong = `w"1\`, "p é", "quic/0", 1, 2
	full.FirstTokens = 2
	empty := Row{ID: "x", Phase: PhaseWarmup, Intended: 0, Sent: Absent, First: Absent, Last: Absent, End: 7,
		Ended: EndConnect, ErrorType: "connect",
		OutputTokens: Absent, Wrong: Absent}
	broken := empty
	broken.ErrorType = "a\x01\xff"
	for _, r := range []Row{full, empty, broken} {
		line := r.AppendJSON(nil)
		if !json.Valid(line) {
			t.Fatalf("not JSON: %s", line)
		}
		got, err := ParseRow(line)
		if err != nil {
			t.Fatal(err)
		}
		want := r
		want.ErrorType = strings.ToValidUTF8(want.ErrorType, "\ufffd")
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if s := string(empty.AppendJSON(nil)); strings.Contains(s, "sent_ns") || strings.Contains(s, "wrong") ||
		strings.Contains(s, "output_tokens") || strings.Contains(s, "status") {
		t.Errorf("what was not measured stands in %s", s)
	}
}

func TestOneBadRowIsOneBadRow(t *testing.T) {
	a, b := row(1, 0, 1, 1, 2), row(2, 0, 1, 1, 2)
	text := string(a.AppendJSON(nil)) + "\n{\"id\":\"cut off\n" + string(b.AppendJSON(nil)) + "\n"
	rows, bad, err := DecodeRows(strings.NewReader(text))
	if err != nil || len(rows) != 2 || rows[0] != a || rows[1] != b {
		t.Errorf("rows %v, %v", rows, err)
	}
	if len(bad) != 1 || bad[0].Line != 2 {
		t.Errorf("bad %v", bad)
	}
}

// fullRun is a run with all that each plane must have.
func fullRun(t *testing.T, plane string) (string, *Run) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	d, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows := []Row{row(1, 0, 10, 100, 11), row(2, 500, 10, 100, 11), failed(3, 600, "timeout")}
	for i := range rows {
		d.Add(&rows[i])
	}
	gaps := NewGaps()
	RecordGap(gaps, 10*msec)
	var kinds ErrorKinds
	kinds.Add(&rows[2], "the worker is gone")
	span, _ := RawSpan(rows)
	w := Summarize(rows, span, gaps, SLO{})
	w.FrontendCPU, w.WorkerCPU, w.LoadgenCPU = Ptr(1.0), Ptr(2.0), Ptr(0.5)
	run := &Run{
		Schema: Schema, ID: "1", StartedAt: "2026-01-02T03:04:05.000+01:00", Marks: []string{}, Raw: w,
		Errors:      kinds.List(),
		Config:      map[string]any{"concurrency": 1, "request_count": 2, "isl": 1, "osl": 11},
		Environment: Environment{Go: "go1", CPUs: 2, Kernel: "6", Revision: "abc", TCPCongestionControl: "cubic"},
		Processes:   []Process{{Role: "loadgen", Name: "loadgen"}}, Client: Client{ScheduleDelayP99: Ptr(0.1)},
	}
	if plane != "" {
		for k, v := range map[string]any{"response_plane": plane, "lanes": 1, "server_endpoints": 4, "workers": 2,
			"worker_processes": 1} {
			run.Config[k] = v
		}
		run.Environment.Settings = []Setting{{Process: "frontend", Role: "frontend", Name: "lanes", Asked: "1",
			InForce: plane + " 1"},
			{Process: "worker-0", Role: "worker", Name: "lanes", Asked: "1", InForce: plane + " 1"}}
		n := Ptr(int64(22))
		run.Plane = &Plane{Records: n, Reads: n, Writes: n, RecordsPerWrite: Ptr(1.0), Wakes: n,
			StreamsEnded: map[string]int64{"complete": 2}, Takeovers: Ptr(int64(0)), ResentBytes: Ptr(int64(0)),
			PlaneRecords: map[string]int64{plane: 22}}
		run.Holders, run.HoldersReference = Ptr(0), Ptr(1)
	}
	if plane == "quic" {
		z := Ptr(int64(0))
		run.Environment.RmemMax, run.Environment.WmemMax = Ptr(int64(1)), Ptr(int64(1))
		run.Environment.Sockets = []Socket{{Process: "frontend", Role: "lane", Port: 1, RecvAsked: z, RecvGranted: z,
			SendAsked: z, SendGranted: z, GRO: Ptr(true), GSO: Ptr(false)}}
		run.UDP = &UDP{InDatagrams: z, OutDatagrams: z, RcvbufErrors: z, SocketDrops: z, LibraryDrops: z,
			PacketsLost: z, DatagramsPerToken: Ptr(0.1), Sockets: []UDPSocket{{Port: 1, Drops: z}}}
	}
	if err := d.Finish(run, Series(rows, nil)); err != nil {
		t.Fatal(err)
	}
	return dir, run
}

// TestSchema holds, for each plane, that a full run passes, and that taking any required field away is noticed.
func TestSchema(t *testing.T) {
	for plane, lists := range map[string][][]string{
		"": {requiredAlways}, "tcp": {requiredAlways, requiredCluster, requiredTCP},
		"tls": {requiredAlways, requiredCluster, requiredTCP}, "quic": {requiredAlways, requiredCluster, requiredQUIC},
	} {
		t.Run("plane="+plane, func(t *testing.T) {
			dir, want := fullRun(t, plane)
			if err := Check(dir); err != nil {
				t.Fatal(err)
			}
			got, err := Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(want)
			if string(a) != string(b) {
				t.Errorf("read back\n%s\nwrote\n%s", a, b)
			}
			text, err := os.ReadFile(filepath.Join(dir, RunFile))
			if err != nil {
				t.Fatal(err)
			}
			for _, list := range lists {
				for _, field := range list {
					if field == "schema" {
						continue
					}
					var tree map[string]any
					if err := json.Unmarshal(text, &tree); err != nil {
						t.Fatal(err)
					}
					at := tree
					keys := strings.Split(field, ".")
					for _, k := range keys[:len(keys)-1] {
						at = at[k].(map[string]any)
					}
					delete(at, keys[len(keys)-1])
					b, _ := json.Marshal(tree)
					if err := os.WriteFile(filepath.Join(dir, RunFile), b, 0o644); err != nil {
						t.Fatal(err)
					}
					var missing *MissingError
					if err := Check(dir); !errors.As(err, &missing) || !strings.Contains(err.Error(), field+
						" is missing") {
						t.Errorf("without %s: %v", field, err)
					}
				}
			}
		})
	}
}

// TestCheckCluster: a cluster run of which one process did not tell its settings, or one socket lacks something, is not
// complete.
func TestCheckCluster(t *testing.T) {
	for _, plane := range []string{"tcp", "quic"} {
		dir, run := fullRun(t, plane)
		if err := CheckCluster(dir); err != nil {
			t.Fatal(err)
		}
		for i, role := range []string{"frontend", "worker"} {
			all := run.Environment.Settings
			run.Environment.Settings = all[1-i : 2-i]
			if err := WriteRun(dir, run); err != nil {
				t.Fatal(err)
			}
			if err := CheckCluster(dir); err == nil || !strings.Contains(err.Error(),
				"environment.settings is missing (a cluster run has those of a "+role) {
				t.Errorf("without those of the %s: %v", role, err)
			}
			run.Environment.Settings = all
		}
	}
	for field, cut := range map[string]func(*Run){
		"environment.sockets.0.process":      func(r *Run) { r.Environment.Sockets[0].Process = "" },
		"environment.sockets.0.role":         func(r *Run) { r.Environment.Sockets[0].Role = "" },
		"environment.sockets.0.port":         func(r *Run) { r.Environment.Sockets[0].Port = 0 },
		"environment.sockets.0.recv_asked":   func(r *Run) { r.Environment.Sockets[0].RecvAsked = nil },
		"environment.sockets.0.recv_granted": func(r *Run) { r.Environment.Sockets[0].RecvGranted = nil },
		"environment.sockets.0.send_asked":   func(r *Run) { r.Environment.Sockets[0].SendAsked = nil },
		"environment.sockets.0.send_granted": func(r *Run) { r.Environment.Sockets[0].SendGranted = nil },
		"environment.sockets.0.gro":          func(r *Run) { r.Environment.Sockets[0].GRO = nil },
		"environment.sockets.0.gso":          func(r *Run) { r.Environment.Sockets[0].GSO = nil },
		"udp.sockets.0.port":                 func(r *Run) { r.UDP.Sockets[0].Port = 0 },
		"udp.sockets.0.drops":                func(r *Run) { r.UDP.Sockets[0].Drops = nil },
	} {
		dir, run := fullRun(t, "quic")
		cut(run)
		if err := WriteRun(dir, run); err != nil {
			t.Fatal(err)
		}
		var missing *MissingError
		if err := CheckCluster(dir); !errors.As(err, &missing) || missing.Field != field {
			t.Errorf("without %s: %v", field, err)
		}
	}
}

func TestCheckFindsDisagreement(t *testing.T) {
	dir, run := fullRun(t, "")
	run.Raw.Requests = 7
	if err := WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	if err := Check(dir); err == nil || !strings.Contains(err.Error(), "7 complete") {
		t.Errorf("counts: %v", err)
	}
	dir, _ = fullRun(t, "")
	f, err := os.OpenFile(filepath.Join(dir, RowsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	twice := row(1, 5, 10, 100, 11)
	twice.First = twice.Sent - 1
	f.Write(append(twice.AppendJSON(nil), '\n'))
	f.WriteString("nonsense\n")
	f.Close()
	err = Check(dir)
	var bad *BadRow
	if err == nil || !errors.As(err, &bad) || !strings.Contains(err.Error(), "twice") || !strings.Contains(err.Error(),
		"first_ns before sent_ns") {
		t.Errorf("rows: %v", err)
	}
}

func TestDirectoriesAreNotReused(t *testing.T) {
	dir, _ := fullRun(t, "")
	if _, err := Create(dir); !errors.Is(err, os.ErrExist) {
		t.Errorf("a run was opened again: %v", err)
	}
	empty := t.TempDir()
	d, err := Create(empty)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	if d, err = Create(empty); err != nil {
		t.Fatalf("a run without rows blocks its directory: %v", err)
	}
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(empty, RunFile), []byte(`{"schema":"laneway.run/9"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var se *SchemaError
	if _, err := Read(empty); !errors.As(err, &se) || se.Got != "laneway.run/9" {
		t.Errorf("another schema: %v", err)
	}
}

func TestThresholds(t *testing.T) {
	_, run := fullRun(t, "")
	for s, miss := range map[string]bool{
		"ttft_p99<11ms": false, "ttft_p99<10ms": true, "ttft_p99<=10ms": false, "raw:itl_avg>9ms": false,
		"itl_max>0.02s":      true,
		"requests_per_s>0.1": false, "errors<=0": true, "error_rate<0.5": false, "wrong_tokens<=0": false,
		"steady:ttft_p50<1h":         true,
		"effective_latency_p99_9<1s": false, "latency_std<1ms": false, "goodput_requests_per_s>0": true,
		"frontend_cpu_ms_per_request<=1": false,
	} {
		th, err := ParseThreshold(s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		if m := th.Check(run); (m != nil) != miss {
			t.Errorf("%s: %v", s, m)
		}
	}
	for _, s := range []string{"", "ttft_p99", "ttft_p99<250", "ttft_p98<1ms", "nonsense<1", "errors<1ms",
		"hot:errors<1", "errors<NaN", "ttft_p99<-5ms", "errors<-1"} {
		if _, err := ParseThreshold(s); err == nil {
			t.Errorf("%q was read", s)
		}
	}
}

func TestSLO(t *testing.T) {
	got, err := ParseSLO("ttft:250ms itl:50 latency:20s")
	if want := (SLO{250e6, 50e6, 20e9}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	for _, s := range []string{"ttft", "ttft:x", "tttt:1ms", "ttft:-1ms", "ttft:inf", "ttft:NaN", "ttft:1e300"} {
		if _, err := ParseSLO(s); err == nil {
			t.Errorf("%q was read", s)
		}
	}
}

func TestVerdict(t *testing.T) {
	_, run := fullRun(t, "")
	if err := run.Verdict(0); err == nil || !strings.Contains(err.Error(), "1 of 3 requests failed") {
		t.Errorf("%v", err)
	}
	if err := run.Verdict(0.34); err != nil {
		t.Errorf("%v", err)
	}
	run.Warmup = &Warmup{Requests: 1, WrongTokens: Ptr(int64(2))}
	run.Mark(MarkNoProof)
	if err := run.Verdict(0.34); err == nil || !strings.Contains(err.Error(), "2 wrong tokens") ||
		!strings.Contains(err.Error(), "no proof") {
		t.Errorf("%v", err)
	}
	if err := new(Run).Verdict(1); err == nil {
		t.Error("a run without requests is fine")
	}
}

func TestTables(t *testing.T) {
	_, a := fullRun(t, "tcp")
	_, b := fullRun(t, "quic")
	b.Mark(MarkNotSteady)
	b.Label = "arm"
	var one, many strings.Builder
	if err := Print(&one, b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"arm (1)", "MARKED: not steady", "TTFT p50/p90/p99 (ms)", "10.0 / 10.0 / 10.0",
		"1 (timeout 1)", `errors: 1 timeout (failed, status 503): "the worker is gone"`,
		"holders: 0 (1 by the reference's rule)", "by plane quic 22"} {
		if !strings.Contains(one.String(), want) {
			t.Errorf("no %q in\n%s", want, one.String())
		}
	}
	if err := PrintArms(&many, []*Run{a, b}, func(i int) string { return []string{"tcp-1", "quic-1"}[i] }); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(many.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], "tcp-1*") || !strings.Contains(lines[2], "not steady") {
		t.Errorf("arms\n%s", many.String())
	}
}
