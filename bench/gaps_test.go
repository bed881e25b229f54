package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

// TestGaps: each gap is run as such beside the bare connection, and the curve says so.
func TestGaps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	app := newApp()
	var out, errs bytes.Buffer
	app.Stdout, app.Stderr = &out, &errs
	if code := run([]string{"gaps", "--pairs=1", "--gap=0s,5ms", "--response-plane=tcp", "--streams=64", "--engines=32",
		"--osl=10", "--inter-token-latency=10ms", "--warmup-duration=200ms", "--duration=400ms",
		"--log-level=error", "--artifact-dir=" + dir}, app); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var r planebench.Report
	if b, err := os.ReadFile(filepath.Join(dir, "run.json")); err != nil || json.Unmarshal(b, &r) != nil {
		t.Fatalf("%v: %s", err, b)
	}
	ended := map[string]float64{} // writes that the end of the gap made, by gap
	for _, run := range r.Runs {
		if run.Records == 0 || run.Wrong != 0 || run.ErrorsAll != 0 {
			t.Errorf("%s, gap %q: %+v", run.Plane, run.Gap, run)
		}
		if !run.Peer {
			ended[run.Gap] = run.Worker.WritesByPerS["gap"]
		}
	}
	if len(r.Runs) != 3 || len(ended) != 2 || ended["0s"] != 0 || ended["5ms"] == 0 {
		t.Errorf("%d runs, writes a second that the end of the gap made: %v, expected some with a gap of 5 ms and "+
			"none without", len(r.Runs), ended)
	}
	b, err := os.ReadFile(filepath.Join(dir, benchtable.File))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"**Gap against CPU and delays (ms)**", "| tcp-sink-gap-5ms | 5ms |",
		"| bare-tcp-sink | none |", "| tcp-sink-gap-5ms / bare-tcp-sink |", "| tcp-sink-gap-5ms / tcp-sink-gap-0s |"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the tables lack %q:\n%s", want, b)
		}
	}
}

func TestGapsRefuses(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"--batch-gap-max=1ms", "--batch-gap-max 1ms: each arm has a gap of its own here: use --gap"},
		{"--gap=7ms", "7ms"},
		{"--engines=1", "--engines 1 with --worker-processes 2"},
	} {
		app := newApp()
		var out, errs bytes.Buffer
		app.Stdout, app.Stderr = &out, &errs
		// One complaint, and where help is.
		if code := run([]string{"gaps", c.arg}, app); code != 1 || !strings.Contains(errs.String(), c.want) ||
			strings.Count(errs.String(), "\n") != 2 {
			t.Errorf("%s: exit code %d, %q", c.arg, code, errs.String())
		}
	}
}

func TestCompareGaps(t *testing.T) {
	got := compareGaps([]string{"tcp-sink-gap-0s", "tcp-sink-gap-2ms", "tls-sink-gap-0s", "tls-sink-gap-2ms",
		"bare-tcp-sink"})
	want := [][2]string{{"tcp-sink-gap-0s", "bare-tcp-sink"}, {"tcp-sink-gap-2ms", "bare-tcp-sink"},
		{"tcp-sink-gap-2ms", "tcp-sink-gap-0s"}, {"tls-sink-gap-2ms", "tls-sink-gap-0s"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, expected %v", got, want)
	}
}
