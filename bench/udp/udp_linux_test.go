package udp

import (
	"encoding/binary"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMeasure: every way carries whole datagrams in order, in the number of calls that it says.
func TestMeasure(t *testing.T) {
	cfg := Config{Datagram: 1000, Bytes: 1 << 20, Runs: 1, Buffer: 4 << 20}
	runs, err := Measure(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 2*len(Ways()) {
		t.Fatalf("%d runs of %d ways", len(runs), len(Ways()))
	}
	for _, r := range runs {
		perCall := float64(max(r.Way.Segments, 1) * r.Way.Messages)
		if r.Wrong != 0 || r.Received == 0 || r.Received > r.Sent || r.SentMBS <= 0 || r.SendCPU <= 0 {
			t.Errorf("%s, GRO %v: %+v", r.Way, r.GRO, r)
		}
		if want := 1000 / perCall; r.SendCalls < want*0.99 || r.SendCalls > want*1.2 {
			t.Errorf("%s: %.1f calls a MB, expected %.1f", r.Way, r.SendCalls, want)
		}
		if one := r.RecvCalls > 999; !r.GRO && !one || r.GRO && r.Way.Segments >= 8 && one {
			t.Errorf("%s, GRO %v: %.1f receive calls a MB", r.Way, r.GRO, r.RecvCalls)
		}
	}
	if g := Groups(append(runs, runs...)); len(g) != len(runs) || len(g[0].Runs) != 2 {
		t.Errorf("%d groups", len(g))
	}
}

// TestReceiverFinds: a datagram that comes twice, or of another length, is wrong.
func TestReceiverFinds(t *testing.T) {
	p, err := newPair(1<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.close() }()
	for _, n := range []uint64{0, 1, 1, 3} {
		if _, err := unix.Write(p.send, binary.LittleEndian.AppendUint64(nil, n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := unix.Write(p.send, make([]byte, 9)); err != nil {
		t.Fatal(err)
	}
	r := newReceiver(p.recv, 8)
	for range 5 {
		if err := r.call(); err != nil {
			t.Fatal(err)
		}
	}
	if r.datagrams != 5 || r.wrong != 2 {
		t.Errorf("%d datagrams, %d wrong, expected 5 and 2", r.datagrams, r.wrong)
	}
}

func TestPacings(t *testing.T) {
	p, err := Pacings()
	if err != nil {
		t.Fatal(err)
	}
	if len(p) != 2 || p[0].ReadBack != "4.0 MB/s" || !strings.HasPrefix(p[1].ReadBack, "clock 1,") {
		t.Errorf("%+v", p)
	}
	for _, o := range p {
		if (o.Note == noFQ) == o.Effect || o.Measured == "" {
			t.Errorf("%+v", o)
		}
	}
}

func TestValidate(t *testing.T) {
	cfg := Config{Datagram: 1473}
	err := cfg.Validate()
	if err == nil || !strings.Contains(err.Error(), "--datagram-size 1473") || !strings.Contains(err.Error(),
		"0 runs") {
		t.Errorf("got %v", err)
	}
	if cfg.Datagram = 1200; cfg.Fits(Way{1, 64, ByOption}) || !cfg.Fits(Way{1, 16, ByOption}) {
		t.Error("64 datagrams of 1200 bytes fit a message, or 16 do not")
	}
}
