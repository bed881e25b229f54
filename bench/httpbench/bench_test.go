package httpbench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/bench/peers"
	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

// TestMain is the child too: the test binary starts itself again, with the broken arms beside the real ones.
func TestMain(m *testing.M) {
	if IsChild() {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		if err := Child(context.Background(), os.Stdin, os.Stdout, log, append(Arms(), broken()...)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // of the children: the race detector has them sleep a second at their end
	goleak.VerifyTestMain(m)
}

// broken are arms that do what the checks must find.
func broken() []Arm {
	spoil := func(name string, spoil func(w planebench.PeerWriter) planebench.PeerWriter) Arm {
		p := peers.Bare("tcp")
		worker := p.Worker
		p.Worker = func(cfg planebench.PeerConfig,
			serve func([]byte, planebench.PeerWriter) error) (planebench.PeerWorker, error) {
			return worker(cfg, func(request []byte, w planebench.PeerWriter) error { return serve(request, spoil(w)) })
		}
		return Arm{Name: name, Peer: &p, Sink: true}
	}
	return []Arm{
		spoil("loses-one",
			func(w planebench.PeerWriter) planebench.PeerWriter { return &faulty{PeerWriter: w, lose: 3} }),
		spoil("swaps-two",
			func(w planebench.PeerWriter) planebench.PeerWriter { return &faulty{PeerWriter: w, swap: 2} }),
		spoil("doubles-one",
			func(w planebench.PeerWriter) planebench.PeerWriter { return &faulty{PeerWriter: w, double: 4} }),
	}
}

// faulty spoils the record of a number.
type faulty struct {
	planebench.PeerWriter
	lose, swap, double, n int
	kept                  []byte
}

func (f *faulty) TryPut(rec []byte) error {
	f.n++
	switch {
	case f.n == f.lose:
		return nil
	case f.n == f.swap:
		f.kept = bytes.Clone(rec)
		return nil
	case f.kept != nil:
		if err := f.PeerWriter.TryPut(rec); err != nil {
			return err
		}
		rec, f.kept = f.kept, nil
	case f.n == f.double:
		if err := f.PeerWriter.TryPut(rec); err != nil {
			return err
		}
	}
	return f.PeerWriter.TryPut(rec)
}

// small is a run of a second or so for each arm.
func small(t *testing.T) Config {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Arms: Arms(), Streams: []int{24}, Pairs: 1, WorkerProcesses: 2, Warmup: 50 * time.Millisecond,
		Duration: 400 * time.Millisecond,
		Load: Load{Engines: 5, OSL: 12, ISL: 8, TokenBytes: 10, Interval: 10 * time.Millisecond,
			FirstToken: 5 * time.Millisecond},
		Settings: planeflags.Settings{Lanes: 1, ServerEndpoints: 2, BindAddr: "127.0.0.1:0", UDPRecvBuffer: 1 << 20,
			UDPSendBuffer: 1 << 20,
			KeepAlive:     5 * time.Second, Idle: 15 * time.Second, ActivePing: time.Second, Resume: 10 * time.Second,
			BatchGap:     2 * time.Millisecond,
			StreamWindow: 64 << 10, Urgent: true, GRO: true, GSO: true},
		Exe: exe, Log: slog.New(slog.DiscardHandler),
	}
}

// TestArms: every arm brings every token to the client, in order, on every out path, and the counts of engines,
// frontend and client are one.
func TestArms(t *testing.T) {
	for _, path := range []string{"auto", "inline", "pull"} {
		t.Run(path, func(t *testing.T) {
			cfg := small(t)
			cfg.OutPath = path
			r, err := Execute(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Verdict(); err != nil {
				t.Fatal(err)
			}
			if len(r.Runs) != len(Arms()) {
				t.Fatalf("%d runs of %d arms", len(r.Runs), len(Arms()))
			}
			for _, run := range r.Runs {
				if run.Tokens == 0 || run.TokensAll < run.Tokens || run.Completed == 0 ||
					run.CompletedAll < run.Completed || run.Frontend.CPUMS <= 0 || run.Client.CPUMS <= 0 {
					t.Errorf("%+v", run)
				}
				if run.TTFT == nil || run.TTFT.P50 < 5 || run.ITL == nil || run.ITL.P50 <= 0 {
					t.Errorf("%s: ttft %+v, itl %+v", run.Arm, run.TTFT, run.ITL)
				}
				if (run.Worker == nil) != (run.Arm == InProcess) || run.Worker != nil && run.Worker.CPUMS <= 0 {
					t.Errorf("%s: worker %+v", run.Arm, run.Worker)
				}
				if (run.Engines != nil) != (run.Arm == InProcess) || run.Engines != nil &&
					(run.Engines.CPUMS <= 0 || run.Engines.CPUMS >= run.Frontend.CPUMS) {
					t.Errorf("%s: engines alone %+v", run.Arm, run.Engines)
				}
				if path != "auto" && run.OutPath != path {
					t.Errorf("%s: out path %s", run.Arm, run.OutPath)
				}
			}
			if len(r.Ratios) != len(Arms())-1+2 || len(r.Added) != 3 || len(r.Growth) != 0 {
				t.Errorf("%d ratios, %d of what is added, %d of growth", len(r.Ratios), len(r.Added), len(r.Growth))
			}
			var table bytes.Buffer
			if err := r.Print(&table); err != nil {
				t.Fatal(err)
			}
			for _, want := range append(Names(Arms()), "KiB an open response",
				"added to the frontend over in-process") {
				if !strings.Contains(table.String(), want) {
					t.Errorf("the table does not say %q:\n%s", want, table.String())
				}
			}
		})
	}
}

// TestEqualRate: fewer open responses make as many tokens a second, and the two are compared.
func TestEqualRate(t *testing.T) {
	cfg := small(t)
	cfg.Arms, cfg.Streams, cfg.ProfileDir = Arms()[:2], []int{8, 40}, t.TempDir()
	cfg.Load.Interval = 50 * time.Millisecond
	r, err := Execute(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verdict(); err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 4 || len(r.Growth) != 2 || r.Growth[0].From != 8 || r.Growth[0].To != 40 {
		t.Fatalf("%d runs, growth %+v", len(r.Runs), r.Growth)
	}
	for _, run := range r.Runs {
		if want := 50 * float64(run.Streams) / 40; run.Interval != want {
			t.Errorf("%d open responses have a pass each %v ms, expected %v", run.Streams, run.Interval, want)
		}
	}
	dir := t.TempDir()
	if err := planebench.WriteReport(dir, r); err != nil {
		t.Fatal(err)
	}
	var back Report
	if b, err := os.ReadFile(filepath.Join(dir, "run.json")); err != nil || json.Unmarshal(b, &back) != nil ||
		back.Schema != Schema || len(back.Runs) != 4 {
		t.Errorf("run.json does not read back: %v, %q, %d runs", err, back.Schema, len(back.Runs))
	}
	if profiles, _ := filepath.Glob(filepath.Join(cfg.ProfileDir, "*.pprof")); len(profiles) != 4 {
		t.Errorf("profiles: %v", profiles)
	}
}

// TestFaultsAreFound: an arm that loses, swaps or doubles a record does not pass.
func TestFaultsAreFound(t *testing.T) {
	for _, a := range broken() {
		t.Run(a.Name, func(t *testing.T) {
			cfg := small(t)
			cfg.Arms = []Arm{a}
			r, err := Execute(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Verdict(); err == nil || !strings.Contains(err.Error(), a.Name) {
				t.Errorf("the verdict is %v: %+v", err, r.Runs[0])
			}
		})
	}
}

// TestCountsMustMeet: tokens that got lost without a wrong text are found by the counts.
func TestCountsMustMeet(t *testing.T) {
	say := func(made, took, read uint64, planes map[string]uint64) string {
		run := &Run{Tokens: 1}
		return run.check(Arm{Name: "laneway-tcp", Plane: "tcp"}, measured{seen: seen{Tokens: read},
			totals: []message{{Totals: &totals{Made: made}}, {Totals: &totals{Tokens: took, Planes: planes}}}})
	}
	for _, c := range []struct {
		made, took, read uint64
		planes           map[string]uint64
		want             string // "" = all is well
	}{
		{9, 9, 9, map[string]uint64{"tcp": 9}, ""},
		{9, 9, 9, nil, ""},
		{9, 8, 8, nil, "the engines made 9, the frontend took 8"},
		{9, 9, 8, nil, "the client read 8"},
		{9, 9, 9, map[string]uint64{"tcp": 8}, "plane tcp counted 8 records of 9"},
		{9, 9, 9, map[string]uint64{"tcp": 9, "quic": 1}, "1 records came over plane quic"},
	} {
		if got := say(c.made, c.took, c.read, c.planes); (got == "") != (c.want == "") ||
			!strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestComparisons: pairs of one repetition are compared, those with a marked run are not, and a peer that is behind
// counts as a lower bound.
func TestComparisons(t *testing.T) {
	run := func(arm string, streams, rep int, ms float64, marks ...string) *Run {
		return &Run{Arm: arm, Streams: streams, Run: rep, Marks: marks, TotalMS: 2 * ms,
			Frontend: Side{CPUMS: ms, TokenUS: ms}, Worker: &Side{CPUMS: ms}}
	}
	r := Report{Runs: []*Run{
		run(InProcess, 10, 1, 1), run("laneway-tcp", 10, 1, 3), run("bare-tcp", 10, 1, 2),
		run("grpc", 10, 1, 9, planebench.MarkBelowOffered), run("laneway-tcp", 2, 1, 2),
		run(InProcess, 10, 2, 1), run("laneway-tcp", 10, 2, 4), run("bare-tcp", 10, 2, 1),
		run("grpc", 10, 2, 8, planebench.MarkMachineLimited), run("laneway-tcp", 2, 2, 4),
		run(InProcess, 10, 3, 1), run("laneway-tcp", 10, 3, 4, MarkClientLimited), run("bare-tcp", 10, 3, 1),
		run("grpc", 10, 3, 8), run("laneway-tcp", 2, 3, 4),
	}}
	for _, one := range r.Runs {
		if one.Arm == InProcess {
			one.Frontend.CPUMS, one.Engines = 1.5, &Side{CPUMS: .5}
		}
	}
	var arms []Arm
	for _, a := range Arms() {
		if a.Name != "tcp-connection" && a.over() != "quic" {
			arms = append(arms, a)
		}
	}
	r.compare(Config{Arms: arms, Streams: []int{2, 10}, Pairs: 3})
	ratio := map[string]Ratio{}
	for _, x := range r.Ratios {
		ratio[fmt.Sprintf("%s/%s@%d", x.Arm, x.Base, x.Streams)] = x
	}
	if x := ratio["grpc/laneway-tcp@10"]; x.Behind != 1 || x.LeftOut != 2 ||
		x.Frontend != (benchtable.Spread{Median: 3, Min: 3, Max: 3, N: 1}) {
		t.Errorf("grpc: %+v", x)
	}
	if x := ratio["laneway-tcp/bare-tcp@10"]; x.LeftOut != 1 ||
		x.Frontend != (benchtable.Spread{Median: 2.75, Min: 1.5, Max: 4, N: 2}) {
		t.Errorf("laneway: %+v", x)
	}
	if len(r.Added) != 1 || r.Added[0].NoBase != 1 || r.Added[0].LeftOut != 1 ||
		r.Added[0].Ratio != (benchtable.Spread{Median: 2, Min: 2, Max: 2, N: 1}) || r.Added[0].OwnMS.N != 2 {
		t.Errorf("added: %+v", r.Added)
	}
	var growth Growth
	for _, x := range r.Growth {
		if x.Arm == LanewayTCP {
			growth = x
		}
	}
	if growth.LeftOut != 1 || growth.Frontend != (benchtable.Spread{Median: 1.25, Min: 1, Max: 1.5, N: 2}) {
		t.Errorf("growth: %+v", growth)
	}
}

func TestValidate(t *testing.T) {
	cfg := small(t)
	cfg.Streams, cfg.Load.Engines, cfg.Load.TokenBytes, cfg.Load.OSL = []int{1, 8192, 8192, 70000}, 1, 1, 1
	err := cfg.Validate()
	if err == nil {
		t.Fatal("no complaint")
	}
	for _, want := range []string{"--streams 70000", "8192 stands twice", "--streams 1 at an equal token rate",
		"--engines 1 with --worker-processes 2", "a load of 1 tokens of 1 bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestChildThatCannotStart: the error names the process and what was wrong.
func TestChildThatCannotStart(t *testing.T) {
	cfg := small(t)
	cfg.Arms = Arms()[1:2]
	cfg.Settings.BindAddr = "192.0.2.1:7000" // an address of documentation, which no machine has
	_, err := Execute(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "192.0.2.1:7000") || !strings.Contains(err.Error(), "worker 0") {
		t.Errorf("got %v, expected an error that names the process and the address", err)
	}
}
