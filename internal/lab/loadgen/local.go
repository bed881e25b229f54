package loadgen

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// local is what one loop (or a share of the goroutine client's connections) counts. Its owner holds mu while it works,
// so the lock is nearly never contended; the end of the run reads it.
type local struct {
	mu         sync.Mutex
	rawGaps    *hdrhistogram.Histogram
	steadyGaps *hdrhistogram.Histogram
	delays     *hdrhistogram.Histogram // how late the loop was, nanoseconds
	told       func(time.Duration)     // of it too; nil = nobody
	chunks     []int64                 // content chunks of each second
	names      map[string]string
}

func newLocal() *local {
	return &local{rawGaps: report.NewGaps(), steadyGaps: report.NewGaps(), delays: report.NewGaps(),
		names: map[string]string{}}
}

// maxNames bounds the interned strings; a server that sends more gets copies.
const maxNames = 1 << 16

// intern returns b as a string that is made once for all rows.
func (l *local) intern(b []byte) string {
	if s, ok := l.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(l.names) < maxNames {
		l.names[s] = s
	}
	return s
}

func (l *local) gap(ns int64, steady bool) {
	report.RecordGap(l.rawGaps, ns)
	if steady {
		report.RecordGap(l.steadyGaps, ns)
	}
}

// chunk counts a content chunk in its second.
func (l *local) chunk(now int64) {
	s := int(now / 1e9)
	for len(l.chunks) <= s {
		l.chunks = append(l.chunks, 0)
	}
	l.chunks[s]++
}

func (l *local) late(ns int64) {
	report.RecordGap(l.delays, ns)
	if l.told != nil {
		l.told(time.Duration(ns))
	}
}

// merged adds up what all loops counted.
func merged(all []*local) *local {
	sum := newLocal()
	for _, l := range all {
		l.mu.Lock()
		sum.rawGaps.Merge(l.rawGaps)
		sum.steadyGaps.Merge(l.steadyGaps)
		sum.delays.Merge(l.delays)
		for i, n := range l.chunks {
			for len(sum.chunks) <= i {
				sum.chunks = append(sum.chunks, 0)
			}
			sum.chunks[i] += n
		}
		l.mu.Unlock()
	}
	return sum
}
