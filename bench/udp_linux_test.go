package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/bench/udp"
)

func TestUDP(t *testing.T) {
	app := newApp()
	var out, errs bytes.Buffer
	app.Stdout, app.Stderr = &out, &errs
	dir := filepath.Join(t.TempDir(), "run")
	if code := run([]string{"udp", "--bytes=1000000", "--pairs=1", "--transfers=2", "--transfer-bytes=1000000",
		"--datagram-size=1200", "--artifact-dir=" + dir}, app); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	for _, want := range []string{"sendmmsg x8 + GSO x16 by message", "GSO + GRO", "SO_MAX_PACING_RATE", "SO_TXTIME"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the tables do not say %q:\n%s", want, out.String())
		}
	}
	if !strings.Contains(errs.String(), "sendmsg + GSO x64 by option is left out") {
		t.Errorf("64 segments of 1200 bytes are not left out with a reason: %s", errs.String())
	}
	var r UDPReport
	if b, err := os.ReadFile(filepath.Join(dir, "run.json")); err != nil || json.Unmarshal(b, &r) != nil ||
		r.Schema != UDPSchema || len(r.Lanes) != 3 || len(r.Pacings) != 2 || len(r.Runs) != 2*(len(udp.Ways())-4) {
		t.Errorf("run.json: %v, %q, %d runs, %d lanes, %d pacings", err, r.Schema, len(r.Runs), len(r.Lanes),
			len(r.Pacings))
	}
	r.Runs[0].Wrong = 1
	if err := r.verdict(); err == nil {
		t.Error("a wrong datagram is no failure")
	}
}
