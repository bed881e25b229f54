package loadgen

import (
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// TestDatagramsPerTokenOfAWindow has 10 s of full batches, 100 records to 6 datagrams, and then 10 s of empty ones.
func TestDatagramsPerTokenOfAWindow(t *testing.T) {
	t0 := time.Now()
	f := &figures{t0: t0}
	at := func(s int, records, datagrams float64) {
		f.samples = append(f.samples, sample{at: t0.Add(time.Duration(s) * time.Second), procs: []*scrape{
			{role: roleFrontend, values: map[series]float64{
				{"laneway_udp_datagrams_total", "in", ""}: datagrams, {"laneway_udp_datagrams_total", "out", ""}: 7,
				{"laneway_plane_records_total", "quic", "in"}: records, {"laneway_plane_records_total", "tcp",
					"in"}: 1e9 * float64(s),
			}},
			{role: roleWorker, values: map[series]float64{}},
		}})
	}
	for s := range 11 {
		at(s, 1000+100*float64(s), 50+6*float64(s))
	}
	for s := 11; s <= 20; s++ {
		at(s, 2000+float64(s), 110+20*float64(s))
	}
	window := func(from, to int) report.Span {
		return report.Span{Start: int64(from) * int64(time.Second), End: int64(to) * int64(time.Second)}
	}
	if got := f.datagramsPerToken(window(1, 10)); got == nil || *got != 0.06 {
		t.Errorf("the steady window has %v a token, want 0.06", got)
	}
	if got := f.datagramsPerToken(window(0, 20)); got == nil || *got < 0.4 {
		t.Errorf("the whole run has %v a token", got)
	}
	f.samples[10].procs[0] = nil
	if got := f.datagramsPerToken(window(1, 10)); got != nil {
		t.Errorf("a scrape that failed gives %v", *got)
	}
}
