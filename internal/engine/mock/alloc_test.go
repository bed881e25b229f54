package mock

import (
	"fmt"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
)

// sink takes everything and keeps nothing.
type sink struct{ bytes int }

func (w *sink) TryPut(rec []byte) error          { w.bytes += len(rec); return nil }
func (w *sink) OnWritable(func())                {}
func (w *sink) Err() error                       { return nil }
func (w *sink) StopRequested() bool              { return false }
func (w *sink) PutComplete([]byte) error         { return nil }
func (w *sink) Fail(responseplane.Failure) error { return nil }

// benchLoop is a loop with n decoding requests that never end, which a test steps itself.
func benchLoop(tb testing.TB, n int) (*loop, *time.Time) {
	cfg := Config{Flush: func() {}, MaxNumSeqs: n + 1, TimeToFirstToken: -1, InterTokenLatencyStdDev: 10 * ms}
	e, err := Start(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	e.Close() // its loop is the test's now
	now := time.Now()
	for i := range n {
		s, _ := newSeq(&e.cfg, req(fmt.Sprint(i), MaxOutputTokens), new(sink))
		e.loop.enqueue(s, now)
	}
	e.loop.step(now)
	if e.loop.running() != n {
		tb.Fatalf("%d running, want %d", e.loop.running(), n)
	}
	return &e.loop, &now
}

func TestPassDoesNotAllocate(t *testing.T) {
	l, now := benchLoop(t, 256)
	pass := func() {
		*now = l.sched.next
		l.step(*now)
	}
	pass()
	if n := testing.AllocsPerRun(100, pass); n != 0 {
		t.Errorf("a pass over 256 requests allocates %v times", n)
	}
}

func BenchmarkPass(b *testing.B) {
	for _, n := range []int{16, 256} {
		b.Run(fmt.Sprintf("running=%d", n), func(b *testing.B) {
			l, now := benchLoop(b, n)
			b.ReportAllocs()
			for b.Loop() {
				*now = l.sched.next
				l.step(*now)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/token")
		})
	}
}
