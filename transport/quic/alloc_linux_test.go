package quic

import (
	"io"
	"runtime"
	"testing"
)

// A packet costs few allocations on both sides together, the library's included: what counts its drops must not cost
// any. (A qlog tracer at the acceptor makes 7 more of each packet that it receives or sends.)
func TestAllocationsOfAPacket(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector drops what pools hold")
	}
	a, b, _, d, acc := pair(t, Config{}, Config{})
	buf := make([]byte, 64)
	trips := func(n int) {
		for range n {
			if _, err := d.Write(buf); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(acc, buf); err != nil {
				t.Fatal(err)
			}
			if _, err := acc.Write(buf); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(d, buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	packets := func() uint64 { return a.Counters().PacketsOut + b.Counters().PacketsOut }
	trips(500) // pools are warm then, and the handshake is over
	var before, after runtime.MemStats
	sent := packets()
	runtime.ReadMemStats(&before)
	trips(5000)
	runtime.ReadMemStats(&after)
	sent = packets() - sent
	each := float64(after.Mallocs-before.Mallocs) / float64(sent)
	t.Logf("%d packets, %.2f allocations and %.0f bytes each", sent, each,
		float64(after.TotalAlloc-before.TotalAlloc)/float64(sent))
	if sent < 5000 || each > 6 {
		t.Errorf("%d packets cost %.2f allocations each", sent, each)
	}
}
