package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/bench/peers"
	"github.com/laneway-ai/laneway/bench/suite"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

// asProgram makes the test binary the program itself, for what a suite starts.
const asProgram = "BENCHTEST_AS_PROGRAM"

// TestMain is the child too: the test binary starts itself again, with the broken peers beside the real ones.
func TestMain(m *testing.M) {
	known = func() []planebench.Peer { return append(peers.All(), broken()...) }
	if planebench.IsChild() || os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:], newApp()))
	}
	goleak.VerifyTestMain(m)
}

// broken are peers that do what the checks must find.
func broken() []planebench.Peer {
	spoil := func(name string, spoil func(w planebench.PeerWriter) planebench.PeerWriter) planebench.Peer {
		p := peers.Bare("tcp")
		p.Name = name
		worker := p.Worker
		p.Worker = func(cfg planebench.PeerConfig,
			serve func([]byte, planebench.PeerWriter) error) (planebench.PeerWorker, error) {
			return worker(cfg, func(request []byte, w planebench.PeerWriter) error { return serve(request, spoil(w)) })
		}
		return p
	}
	return []planebench.Peer{
		spoil("drops-one",
			func(w planebench.PeerWriter) planebench.PeerWriter { return &dropper{PeerWriter: w, which: 3} }),
		spoil("drops-last",
			func(w planebench.PeerWriter) planebench.PeerWriter { return &dropper{PeerWriter: w, which: 10} }),
		spoil("swaps-two", func(w planebench.PeerWriter) planebench.PeerWriter { return &swapper{PeerWriter: w} }),
		spoil("spoils-a-byte", func(w planebench.PeerWriter) planebench.PeerWriter { return &spoiler{PeerWriter: w} }),
	}
}

// dropper says that it took a record that it did not take.
type dropper struct {
	planebench.PeerWriter
	which, n int
}

func (d *dropper) TryPut(rec []byte) error {
	if d.n++; d.n == d.which {
		return nil
	}
	return d.PeerWriter.TryPut(rec)
}

// swapper sends the second record after the third.
type swapper struct {
	planebench.PeerWriter
	n    int
	kept []byte
}

func (s *swapper) TryPut(rec []byte) error {
	switch s.n++; s.n {
	case 2:
		s.kept = bytes.Clone(rec)
		return nil
	case 3:
		return errors.Join(s.PeerWriter.TryPut(rec), s.PeerWriter.TryPut(s.kept))
	}
	return s.PeerWriter.TryPut(rec)
}

// spoiler changes the last byte of a record.
type spoiler struct {
	planebench.PeerWriter
	n int
}

func (s *spoiler) TryPut(rec []byte) error {
	if s.n++; s.n == 5 {
		rec = bytes.Clone(rec)
		rec[len(rec)-1] ^= 1
	}
	return s.PeerWriter.TryPut(rec)
}

// try runs the program at a small load and returns its exit code, what it printed, and its report.
func try(t *testing.T, args ...string) (code int, out, errs string, r planebench.Report) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	app := newApp()
	var stdout, stderr bytes.Buffer
	app.Stdout, app.Stderr = &stdout, &stderr
	code = run(append([]string{"--pairs=1", "--streams=24", "--engines=4", "--frontends=2", "--osl=10",
		"--inter-token-latency=10ms", "--warmup-duration=150ms",
		"--duration=300ms", "--artifact-dir=" + dir, "--log-level=error"}, args...), app)
	if b, err := os.ReadFile(filepath.Join(dir, "run.json")); err == nil {
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
	}
	return code, stdout.String(), stderr.String(), r
}

// TestPeers: every peer carries every record of every response, in order, between real processes, and so do ours.
func TestPeers(t *testing.T) {
	code, out, errs, r := try(t)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var ran []string
	for _, run := range r.Runs {
		name := run.Plane + "-" + run.Delivery
		ran = append(ran, name)
		if run.Wrong != 0 || run.ErrorsAll != 0 || run.Records == 0 || run.CompletedAll < 24 || run.Invalid != "" {
			t.Errorf("%s: %d wrong, %d errors, %d records in the window, %d completed; %s", name, run.Wrong,
				run.ErrorsAll, run.Records, run.CompletedAll, run.Invalid)
		}
		if run.Frontend.CPUMS <= 0 || run.Worker.CPUMS <= 0 || len(run.Frontend.Processes) != 2 ||
			len(run.Worker.Processes) != 2 {
			t.Errorf("%s: frontend %+v, worker %+v", name, run.Frontend, run.Worker)
		}
		if broker := run.Broker != nil; broker != (run.Plane == "nats") || broker &&
			(run.Broker.CPUMS <= 0 || run.TotalMS < run.Frontend.CPUMS+run.Worker.CPUMS+run.Broker.CPUMS-1e-6) {
			t.Errorf("%s: broker %+v, total %v", name, run.Broker, run.TotalMS)
		}
		if run.TTFT == nil || run.Delay == nil || run.Delay.Min < 0 {
			t.Errorf("%s: ttft %+v, delay %+v", name, run.TTFT, run.Delay)
		}
		if counted := run.Frontend.PlaneFigures != nil; counted == run.Peer {
			t.Errorf("%s: figures of a plane: %v", name, run.Frontend.PlaneFigures)
		}
	}
	want := []string{
		"tcp-pull", "tcp-sink", "quic-pull", "quic-sink", "bare-tcp-pull", "bare-tcp-sink", "bare-quic-pull",
		"bare-quic-sink", "grpc-pull", "yamux-pull", "smux-pull",
		"nats-pull", "sse-pull", "tcp-connection-pull", "quic-stream-pull",
	}
	for _, name := range want {
		if !slices.Contains(ran, name) || !strings.Contains(out, name) {
			t.Errorf("%s was not run, or is not in the table: %v", name, ran)
		}
	}
	if len(r.Runs) != len(want) {
		t.Errorf("%d runs, expected %d", len(r.Runs), len(want))
	}
	for _, pair := range []string{"tcp-sink / bare-tcp-sink", "tcp-pull / bare-tcp-pull", "grpc-pull / tcp-sink",
		"quic-sink / tcp-sink", "quic-pull / bare-quic-pull"} {
		if !strings.Contains(out, pair) {
			t.Errorf("%s are not compared:\n%s", pair, out)
		}
	}
}

// TestSaturated: engines without a pause meet full queues, and nothing is lost there.
func TestSaturated(t *testing.T) {
	code, _, errs, r := try(t, "--inter-token-latency=0", "--osl=400", "--streams=8",
		"--peer=bare-tcp,grpc,yamux,quic-stream,sse,tcp-connection,smux", "--response-plane=tcp", "--delivery=sink",
		"--warmup-duration=50ms", "--duration=100ms")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, run := range r.Runs {
		if run.Records == 0 || run.CompletedAll < 8 {
			t.Errorf("%s: %d records, %d responses", run.Plane, run.Records, run.CompletedAll)
		}
	}
}

// TestBrokenPeers: a peer that loses, swaps or spoils a record is found, and the exit code says so.
func TestBrokenPeers(t *testing.T) {
	for _, p := range broken() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			code, _, errs, r := try(t, "--peer="+p.Name, "--response-plane=tcp", "--delivery=pull", "--floor=tcp-pull",
				"--frontends=1")
			if code != 2 || !strings.Contains(errs, p.Name) || !strings.Contains(errs, "wrong records") {
				t.Errorf("exit code %d: %s", code, errs)
			}
			if len(r.Runs) != 2 || r.Runs[0].Wrong != 0 || r.Runs[1].Wrong == 0 {
				t.Errorf("runs: %+v", r.Runs)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--floor=none-pull"}, `--floor none-pull: is not run: use one of [tcp-pull`},
		{[]string{"--peer=thrift"}, "thrift"},
		{[]string{"--engines=1"}, "--engines 1 with --worker-processes 2"},
		{[]string{"--streams=0"}, "--streams"},
	} {
		if code, _, errs, _ := try(t, c.args...); code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d, %q, expected %q in it", c.args, code, errs, c.want)
		}
	}
}

// TestQUIC: every caliber has a figure, and the suite says what it used.
func TestQUIC(t *testing.T) {
	app := newApp()
	var out, errs bytes.Buffer
	app.Stdout, app.Stderr = &out, &errs
	dir := filepath.Join(t.TempDir(), "run")
	if code := run([]string{"quic", "--bytes=1MiB", "--memory-bytes=1MiB", "--echoes=20", "--pairs=2",
		"--log-level=error", "--artifact-dir=" + dir}, app); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	for _, want := range []string{"handshake and first byte", "one lane, warm connection", "echo of 1 KiB p99.9",
		"four lanes", "loss 5%, round trip + 100", "without sockets", "datagrams that came", "peak RSS"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, out.String())
		}
	}
	var r QUICReport
	if b, err := os.ReadFile(filepath.Join(dir, "run.json")); err != nil || json.Unmarshal(b, &r) != nil ||
		r.Schema != QUICSchema || len(r.Figures) != 36 || r.UserS <= 0 {
		t.Errorf("run.json: %v, %d figures, %+v", err, len(r.Figures), r)
	}
	if got := deviation([]float64{1, 3}); got != "70.7%" {
		t.Errorf("the deviation of 1 and 3 is %s, expected 70.7%%", got)
	}
}

// TestSuite runs parts of every kind in the small form: another program, a command of this one, peers, a Go benchmark,
// settings.
func TestSuite(t *testing.T) {
	t.Setenv(asProgram, "1")
	dir := filepath.Join(t.TempDir(), "suite")
	app := newApp()
	var out, errs bytes.Buffer
	app.Stdout, app.Stderr = &out, &errs
	if code := run([]string{"suite", "--quick", "--only=transport,peers-128-engines,quic,mux-wire,settings", "--out=" +
		dir}, app); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	b, err := os.ReadFile(filepath.Join(dir, suite.IndexFile))
	var ix suite.Index
	if err != nil || json.Unmarshal(b, &ix) != nil || len(ix.Parts) != 5 || ix.Partial != "" || !ix.Quick ||
		ix.Machine.Cores < 1 || ix.Machine.Go == "" || ix.Revision.ID == "" || ix.Ended == "" {
		t.Fatalf("%v: %s", err, b)
	}
	for _, p := range ix.Parts {
		if p.ExitCode != 0 || p.Seconds <= 0 {
			t.Errorf("%+v", p)
		}
		if text, err := os.ReadFile(filepath.Join(dir, p.Stdout)); err != nil || len(text) == 0 {
			t.Errorf("%s: output %q, %v", p.Name, text, err)
		}
		if p.Artifacts != "" {
			if _, err := os.Stat(filepath.Join(dir, p.Artifacts, "run.json")); err != nil {
				t.Error(err)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, suite.PageFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"**Quick**", "- revision: `", "Messages over one lane", "handshake and first byte",
		"| FirstRecordOnTheWire | quic | parks |", "to memory", "quic discovered / tcp", "go run . quic",
		"quic-gro-off", "TTFT p99"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	// A second suite does not mix with the first.
	errs.Reset()
	app = newApp()
	app.Stdout, app.Stderr = &out, &errs
	if code := run([]string{"suite", "--quick", "--only=quic", "--out=" + dir}, app); code != 1 ||
		!strings.Contains(errs.String(), "is not empty: name another folder with --out") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestSuiteListsAndRefuses(t *testing.T) {
	app := newApp()
	var out, errs bytes.Buffer
	app.Stdout, app.Stderr = &out, &errs
	if code := run([]string{"suite", "--list"}, app); code != 0 || !strings.Contains(out.String(), "cluster") ||
		!strings.Contains(out.String(), "together") {
		t.Errorf("exit code %d: %s%s", code, out.String(), errs.String())
	}
	app = newApp()
	app.Stdout, app.Stderr = &out, &errs
	if code := run([]string{"suite", "--only=udb"}, app); code != 1 || !strings.Contains(errs.String(),
		`"udb" is not known: use transport, streams`) {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestFloor: without --floor, any choice of peers can be run.
func TestFloor(t *testing.T) {
	for _, args := range [][]string{{"--peer=grpc,nats"}, {"--peer=grpc", "--delivery=pull"},
		{"--peer=bare-tcp", "--delivery=pull"}} {
		app := newApp()
		var out, errs bytes.Buffer
		app.Stdout, app.Stderr = &out, &errs
		if code := run(append(args, "--check-config"), app); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, errs.String())
		}
	}
	if got := otherFloor([]string{"tcp-pull", "bare-tcp-pull", "grpc-pull"}); got != "bare-tcp-pull" {
		t.Errorf("floor %q", got)
	}
	for _, pair := range compare([]string{"tcp-pull", "grpc-pull"}, otherFloor([]string{"tcp-pull", "grpc-pull"})) {
		t.Errorf("pair %v, though no floor is run and no arm is a sink", pair)
	}
}

func TestCompare(t *testing.T) {
	got := compare([]string{"tcp-pull", "tcp-sink", "quic-sink", "bare-tcp-pull", "bare-tcp-sink", "grpc-pull"},
		"bare-tcp-sink")
	want := [][2]string{
		{"tcp-pull", "bare-tcp-sink"}, {"tcp-sink", "bare-tcp-sink"}, {"quic-sink", "bare-tcp-sink"},
		{"bare-tcp-pull", "bare-tcp-sink"}, {"grpc-pull", "bare-tcp-sink"},
		{"tcp-pull", "bare-tcp-pull"}, {"quic-sink", "tcp-sink"}, {"tcp-pull", "tcp-sink"}, {"grpc-pull", "tcp-sink"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, expected %v", got, want)
	}
}
