package lanes

import (
	"bytes"
	"io"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/transport/quic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOffload(t *testing.T) {
	runs, err := Offload(t.Context(), OffloadConfig{Bytes: 4 << 20, Transfers: 2, Runs: 1,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 3 {
		t.Fatalf("%d runs", len(runs))
	}
	for _, r := range runs {
		if r.MBS <= 0 || r.CPU <= 0 || r.Datagrams < 500 || r.SendCalls <= 0 || r.RecvCalls <= 0 {
			t.Errorf("%s: %+v", r.Name(), r)
		}
	}
	if none, gso := runs[0], runs[1]; none.SendCalls < 0.95*none.Datagrams || gso.SendCalls > 0.5*gso.Datagrams {
		t.Errorf("GSO changes nothing: %+v, %+v", none, gso)
	}
}

// TestCheckFinds: a byte that is not what was sent is found, and so is an end that comes early.
func TestCheckFinds(t *testing.T) {
	good := make([]byte, chunk)
	for i := range good {
		good[i] = byte(i % 251)
	}
	if err := check(bytes.NewReader(good), chunk); err != nil {
		t.Error(err)
	}
	if err := check(bytes.NewReader(good[:chunk-1]), chunk); err != io.ErrUnexpectedEOF {
		t.Errorf("a short transfer: %v", err)
	}
	if err := check(bytes.NewReader(good[1:]), chunk-1); err == nil {
		t.Error("bytes that have moved are taken")
	}
}

func TestCalibers(t *testing.T) {
	f, err := Calibers(t.Context(), CaliberConfig{Bytes: 4 << 20, Memory: 1 << 20, Echoes: 50, Runs: 1,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	units := map[string]int{}
	for _, x := range f {
		units[x.Unit]++
		if x.Value <= 0 && x.Unit != "%" {
			t.Errorf("%+v", x)
		}
	}
	if units["MB/s"] != 3+4+2+1 || units["us"] != 6 || units["ms"] != 1 || units["%"] != 1 {
		t.Errorf("%v: %+v", units, f)
	}
}

// TestRelay: the relay drops about what it is told to, and delays.
func TestRelay(t *testing.T) {
	p, err := newPair(t.Context(), quic.Config{}, path{loss: 0.05, rtt: 20 * time.Millisecond},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}()
	v, err := echoes(p.dialled, p.accepted, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range v {
		if d < 20*time.Millisecond {
			t.Errorf("an echo took %v over a round trip of 20ms", d)
		}
	}
	if err := transfer(p.accepted, p.dialled, 1<<20); err != nil {
		t.Fatal(err)
	}
	if passed, dropped := p.relay.passed.Load(), p.relay.dropped.Load(); dropped < passed/100 || dropped > passed/5 {
		t.Errorf("%d passed, %d dropped, expected about 5%%", passed, dropped)
	}
}
