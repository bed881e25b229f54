package planebench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/transport"
)

// TestMain is the child too: the test binary starts itself again.
func TestMain(m *testing.M) {
	if IsChild() {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		if err := Child(context.Background(), os.Stdin, os.Stdout, log); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func settings() planeflags.Settings {
	return planeflags.Settings{Lanes: 1, ServerEndpoints: 2, BindAddr: "127.0.0.1:0", UDPRecvBuffer: 1 << 20,
		UDPSendBuffer: 1 << 20,
		KeepAlive:     5 * time.Second, Idle: 15 * time.Second, ActivePing: time.Second, Resume: 10 * time.Second,
		BatchGap:     2 * time.Millisecond,
		StreamWindow: 64 << 10, Urgent: true, GRO: true, GSO: true}
}

// small is a run of a second or so.
func small(t *testing.T) Config {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Planes: []string{transport.PlaneTCP}, Deliveries: []string{Pull}, Runs: 1, Settings: settings(),
		Load:      Load{Concurrency: 40, Engines: 5, OSL: 40, TokenBytes: 64, Interval: 10 * time.Millisecond},
		Frontends: 2, WorkerProcesses: 2, Requests: 60, Exe: exe, Log: slog.New(slog.DiscardHandler),
	}
}

// TestExecute runs real processes over both kinds of plane, both ways to consume.
func TestExecute(t *testing.T) {
	cfg := small(t)
	cfg.Planes, cfg.Deliveries = []string{transport.PlaneTCP, transport.PlaneQUIC}, Deliveries()
	cfg.ProfileDir = t.TempDir()
	r, err := Execute(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verdict(0); err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 4 || len(r.Ratios) != 3 || r.Ratios[0].Total.N+r.Ratios[0].LeftOut != 1 {
		t.Fatalf("%d runs, ratios %+v", len(r.Runs), r.Ratios)
	}
	for _, run := range r.Runs {
		name := run.Plane + "-" + run.Delivery
		if run.ErrorsAll != 0 || run.Wrong != 0 || run.Completed < 60 || run.CompletedAll < run.Completed ||
			run.Records == 0 {
			t.Errorf("%s: %d errors, %d wrong, %d of at least 60 responses, %d in all, %d records", name, run.ErrorsAll,
				run.Wrong, run.Completed, run.CompletedAll, run.Records)
		}
		for what, d := range map[string]bool{"ttft": run.TTFT != nil, "itl": run.ITL != nil, "delay": run.Delay != nil,
			"first delay": run.FirstDelay != nil} {
			if !d {
				t.Errorf("%s has no %s", name, what)
			}
		}
		if run.TTFT != nil && (run.TTFT.P50 <= 0 || run.TTFT.P50 > 10_000) || run.Delay != nil &&
			(run.Delay.Min < 0 || run.Delay.P50 <= 0 || run.Delay.P50 > 10_000) {
			t.Errorf("%s: ttft %+v, delay %+v", name, run.TTFT, run.Delay)
		}
		if run.ITL != nil && (run.ITL.P50 < 5 || run.ITL.P50 > 10_000) {
			t.Errorf("%s: itl %+v", name, run.ITL)
		}
		if f := run.Frontend; f.CPUMS <= 0 || f.ReadsPerS <= 0 || f.RecordsPerRead < 1 || len(f.Processes) != 2 ||
			f.Mallocs <= 0 {
			t.Errorf("%s: frontend %+v", name, f)
		}
		if w := run.Worker; w.CPUMS <= 0 || w.WritesPerS <= 0 || w.RecordsPerWrite <= 0 || len(w.Processes) != 2 {
			t.Errorf("%s: worker %+v", name, w)
		}
		if pulled := run.Frontend.WakesPerS > 0; pulled != (run.Delivery == Pull) {
			t.Errorf("%s: %.0f wakes, %.0f sink calls a second", name, run.Frontend.WakesPerS,
				run.Frontend.SinkCallsPerS)
		}
		if len(run.Sockets) == 0 {
			t.Errorf("%s lists no sockets", name)
		}
	}
	var table bytes.Buffer
	if err := r.Print(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tcp-pull", "quic-sink", "quic-sink / tcp-pull", "delivery delay ms"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, table.String())
		}
	}
	dir := t.TempDir()
	if err := WriteReport(dir, r); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(dir, r); err == nil {
		t.Error("a second report overwrote the first")
	}
	var back Report
	if b, err := os.ReadFile(filepath.Join(dir, "run.json")); err != nil || json.Unmarshal(b, &back) != nil ||
		back.Schema != Schema || len(back.Runs) != 4 {
		t.Errorf("run.json does not read back: %v, %q, %d runs", err, back.Schema, len(back.Runs))
	}
	if profiles, _ := filepath.Glob(filepath.Join(cfg.ProfileDir, "*.pprof")); len(profiles) != 16 {
		t.Errorf("%d profiles: %v", len(profiles), profiles)
	}
}

// TestBaselines: every bare plane beside ours, each record verified, each pair compared.
func TestBaselines(t *testing.T) {
	want := map[string]string{
		"tcp-sink": "tcp-pull", "tcp-pull-per-record": "tcp-pull", "tcp-sink-batched": "tcp-sink",
		"tcp-pull-per-response-connection": "tcp-pull",
		"quic-sink-per-record":             "quic-sink", "quic-sink-batched": "quic-sink",
	}
	for plane, deliveries := range map[string][]string{transport.PlaneTCP: Deliveries(), transport.PlaneQUIC: {Sink}} {
		cfg := small(t)
		cfg.Planes, cfg.Deliveries, cfg.Baselines = []string{plane}, deliveries, Baselines()
		cfg.Load.OSL, cfg.Requests, cfg.WarmupRequests, cfg.BaselineInterval = 15, 30, 10, 5*time.Millisecond
		r, err := Execute(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Verdict(0); err != nil {
			t.Fatal(err)
		}
		arms := 4 * len(deliveries)
		if plane == transport.PlaneQUIC {
			arms-- // no connection for each response
		}
		if len(r.Runs) != arms || len(r.Ratios) != len(r.Runs)-1 {
			t.Fatalf("%d runs, %d ratios", len(r.Runs), len(r.Ratios))
		}
		for _, run := range r.Runs {
			if run.Completed < 30 || run.Records == 0 || run.Worker.WritesPerS == 0 || run.Frontend.ReadsPerS == 0 {
				t.Errorf("%s: %d completed, %d records, worker %+v", run.arm(), run.Completed, run.Records, run.Worker)
			}
		}
		for _, x := range r.Ratios {
			if base, ok := want[x.Arm]; ok && base != x.Base {
				t.Errorf("%s is compared with %s, expected %s", x.Arm, x.Base, base)
			}
			delete(want, x.Arm)
		}
	}
	if len(want) > 0 {
		t.Errorf("no ratio of %v", want)
	}
}

// TestSaturated: without a pause between passes only the windows hold the engines back.
func TestSaturated(t *testing.T) {
	cfg := small(t)
	cfg.Deliveries = Deliveries()
	cfg.Load.Interval, cfg.Load.OSL, cfg.Load.TokenBytes, cfg.Settings.StreamWindow = 0, 300, 100, 8<<10
	cfg.Requests, cfg.Duration = 0, 300*time.Millisecond
	r, err := Execute(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verdict(0); err != nil {
		t.Fatal(err)
	}
	for _, run := range r.Runs {
		if run.OfferedPerS != nil || run.LateShare != nil || run.Worker.WindowStalls == 0 {
			t.Errorf("%s: offered %v, late %v, %d window stalls", run.Delivery, run.OfferedPerS, run.LateShare,
				run.Worker.WindowStalls)
		}
	}
}

// startWatched begins a long run and returns its processes once the window has begun.
func startWatched(t *testing.T, ctx context.Context, cfg Config) (procs []*proc, result chan error) {
	t.Helper()
	cfg.Requests, cfg.Duration, cfg.Warmup = 0, time.Hour, time.Millisecond
	running := make(chan []*proc, 1)
	cfg.began = func(procs []*proc) { running <- procs }
	result = make(chan error, 1)
	go func() {
		_, err := Execute(ctx, cfg)
		result <- err
	}()
	select {
	case procs = <-running:
	case err := <-result:
		t.Fatalf("the run has ended: %v", err)
	}
	return procs, result
}

// checkGone fails when a child is left.
func checkGone(t *testing.T, procs []*proc) {
	t.Helper()
	for _, p := range procs {
		if p.Cmd.ProcessState == nil {
			t.Errorf("%s (pid %d) was left running", p.Name, p.Cmd.Process.Pid)
		}
	}
}

func TestWorkerKilledInMidRun(t *testing.T) {
	for _, plane := range []string{transport.PlaneTCP, transport.PlaneQUIC} {
		t.Run(plane, func(t *testing.T) {
			cfg := small(t)
			cfg.Planes = []string{plane}
			procs, result := startWatched(t, t.Context(), cfg)
			if len(procs) != 4 {
				t.Fatalf("%d processes", len(procs))
			}
			victim := procs[1]
			if err := victim.Cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			err := <-result
			var child *ChildError
			if !errors.As(err, &child) || child.Setup || child.Name != "worker 1" ||
				child.PID != victim.Cmd.Process.Pid || !strings.Contains(err.Error(), "killed") {
				t.Errorf("got %v, expected an error that names worker 1 and how it ended", err)
			}
			checkGone(t, procs)
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	procs, result := startWatched(t, ctx, small(t))
	why := errors.New("the test has seen enough")
	cancel(why)
	if err := <-result; !errors.Is(err, why) {
		t.Errorf("got %v, expected the cause", err)
	}
	checkGone(t, procs)
}

// TestHungChildIsKilled: a child that does not even read its standard input is ended by force.
func TestHungChildIsKilled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	procs, result := startWatched(t, ctx, small(t))
	if err := procs[0].Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	checkGone(t, procs)
}

func TestChildThatCannotStart(t *testing.T) {
	cfg := small(t)
	cfg.Settings.BindAddr = "192.0.2.1:7000" // an address of documentation, which no machine has
	_, err := Execute(t.Context(), cfg)
	var child *ChildError
	if !errors.As(err, &child) || !child.Setup || !strings.Contains(err.Error(), "192.0.2.1:7000") {
		t.Errorf("got %v, expected an error that names the address", err)
	}
}

func TestValidate(t *testing.T) {
	cfg := small(t)
	cfg.Load.Engines, cfg.Load.TokenBytes, cfg.Requests, cfg.Frontends = 1, 8, 0, 41
	cfg.Baselines = []string{"none"}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("no complaint")
	}
	for _, want := range []string{"--engines 1 with --worker-processes 2", "--concurrency 40 with --frontends 41",
		"of 8 bytes", "--request-count 0", `baseline "none"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestRatios: pairs of one repetition are compared, those with a marked run are not.
func TestRatios(t *testing.T) {
	run := func(delivery string, rep int, front, worker float64, marks ...string) *Run {
		return &Run{Plane: "tcp", Delivery: delivery, Run: rep, Marks: marks, Frontend: Side{CPUMS: front},
			Worker: Side{CPUMS: worker}, TotalMS: front + worker}
	}
	spread := func(median, least, most float64, n int) benchtable.Spread {
		return benchtable.Spread{Median: median, Min: least, Max: most, N: n}
	}
	runs := []*Run{run(Pull, 1, 1, 1), run(Sink, 1, .5, 1), run(Sink, 2, 2, 2), run(Pull, 2, 2, 1), run(Pull, 3, 1, 1),
		run(Sink, 3, .4, 1), run(Pull, 4, 1, 1), run(Sink, 4, 9, 9, MarkBelowOffered)}
	got := ratios([][2]arm{{{plane: "tcp", delivery: Sink}, {plane: "tcp", delivery: Pull}}}, runs)
	want := []Ratio{{Arm: "tcp-sink", Base: "tcp-pull", LeftOut: 1, Frontend: spread(.5, .4, 1, 3),
		Worker: spread(1, 1, 2, 3), Total: spread(.75, .7, 4./3, 3)}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, expected %+v", got, want)
	}

	// A peer that is behind counts, as a lower bound; one beside a base that is behind does not.
	peer := func(rep int, ms float64, marks ...string) *Run {
		r := run(Pull, rep, ms, ms, marks...)
		r.Plane, r.Peer = "x", true
		return r
	}
	runs = []*Run{run(Sink, 1, 1, 1), peer(1, 5, MarkBelowOffered), run(Sink, 2, 1, 1, MarkBelowOffered), peer(2, 9),
		run(Sink, 3, 1, 1), peer(3, 9, MarkMachineLimited)}
	got = ratios([][2]arm{{{plane: "x", delivery: Pull, peer: true}, {plane: "tcp", delivery: Sink}}}, runs)
	want = []Ratio{{Arm: "x-pull", Base: "tcp-sink", LeftOut: 2, Behind: 1, Frontend: spread(5, 5, 5, 1),
		Worker: spread(5, 5, 5, 1), Total: spread(5, 5, 5, 1)}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, expected %+v", got, want)
	}
}

func TestVerdict(t *testing.T) {
	good := Run{Plane: "tcp", Delivery: Pull, Run: 1, CompletedAll: 99, ErrorsAll: 1,
		Notes: []string{"response 7: lost"}}
	r := Report{Runs: []*Run{&good}}
	if err := r.Verdict(0.01); err != nil {
		t.Errorf("1 of 100 failed with 1%% allowed: %v", err)
	}
	for _, c := range []struct {
		run  Run
		want string
	}{
		{good, "1 of 100 responses failed: response 7: lost"},
		{Run{Plane: "tcp", Delivery: Sink, Run: 2, Wrong: 3}, "tcp-sink run 2: 3 wrong records"},
		{Run{Plane: "tcp", Delivery: Sink, Run: 2, Invalid: "no proof of transit"}, "no proof of transit"},
	} {
		r := Report{Runs: []*Run{&c.run}}
		var wrong *WrongError
		if err := r.Verdict(0); !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, expected %q", err, c.want)
		}
	}
}
