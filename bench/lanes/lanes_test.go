package lanes

import (
	"bytes"
	"io"
	"log/slog"
	"testing"

	"github.com/laneway-ai/laneway/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestOffload(t *testing.T) {
	runs, err := Offload(t.Context(), OffloadConfig{Bytes: 4 << 20, Transfers: 2, Runs: 1, Log: slog.New(slog.DiscardHandler)})
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
