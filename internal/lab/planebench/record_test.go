package planebench

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

func TestRecordProvesItself(t *testing.T) {
	for _, size := range []int{MinTokenBytes, 33, 40, 64, 71, 1000} {
		b := make([]byte, size)
		putRecord(b, 7, 3, 12345)
		if stamp, ok := checkRecord(b, 7, 3, size); !ok || stamp != 12345 {
			t.Fatalf("size %d: a right record is refused (stamp %d)", size, stamp)
		}
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				if _, ok := checkRecord(b, 7, 3, size); ok {
					t.Fatalf("size %d: bit %d of byte %d was turned and nobody saw it", size, bit, i)
				}
				b[i] ^= 1 << bit
			}
		}
		for what, ok := range map[string]func() (int64, bool){
			"another response": func() (int64, bool) { return checkRecord(b, 8, 3, size) },
			"another number":   func() (int64, bool) { return checkRecord(b, 7, 4, size) },
			"cut":              func() (int64, bool) { return checkRecord(b[:size-1], 7, 3, size) },
			"another length":   func() (int64, bool) { return checkRecord(b, 7, 3, size+1) },
			"nothing":          func() (int64, bool) { return checkRecord(nil, 7, 3, size) },
		} {
			if _, ok := ok(); ok {
				t.Errorf("size %d, %s: taken for right", size, what)
			}
		}
	}
}

// TestHistAgainstExact holds the histogram's percentiles against those of all values.
func TestHistAgainstExact(t *testing.T) {
	h := new(hist)
	r := rand.New(rand.NewPCG(1, 2))
	var all []float64
	for range 100_000 {
		v := math.Exp(r.NormFloat64()*2 + 12) // 160 us, some under 1 us, some over 100 ms
		h.add(int64(v))
		all = append(all, math.Floor(v))
	}
	got, want := h.snapshot().dist(), report.NewDist(all)
	for name, pair := range map[string][2]float64{
		"p50": {got.P50, want.P50}, "p90": {got.P90, want.P90}, "p99": {got.P99, want.P99},
		"p99.9": {got.P999, want.P999}, "avg": {got.Avg, want.Avg},
		"max": {got.Max, want.Max},
	} {
		if math.Abs(pair[0]-pair[1]) > 0.01*pair[1] {
			t.Errorf("%s: %.6f ms, exact is %.6f", name, pair[0], pair[1])
		}
	}
	for _, v := range []int64{-5, 0, 1, 127, 128, 255, 256, 257, 1 << 20, 1<<40 - 1, 1 << 40, 1 << 62, math.MaxInt64} {
		i := bucket(v)
		if i < 0 || i >= histBuckets {
			t.Fatalf("%d falls in bucket %d of %d", v, i, histBuckets)
		}
		if m := middle(i); v >= 0 && v < 1<<40 && math.Abs(float64(m-v)) > float64(v)/128 {
			t.Errorf("%d is shown as %d", v, m)
		}
	}
	h.reset()
	if n := len(h.snapshot()); n != 0 {
		t.Errorf("%d buckets after reset", n)
	}
}

func TestClockAgreesWithTheHost(t *testing.T) {
	c := newClock()
	for range 5 {
		before := hostClock()
		now := c.now()
		after := hostClock()
		if now < before-1e6 || now > after+1e6 {
			t.Errorf("the clock says %d between %d and %d of the host", now, before, after)
		}
	}
}

// TestFirstLengths: at each engine the first responses end evenly over the lifetime of a response.
func TestFirstLengths(t *testing.T) {
	for _, l := range []Load{{Concurrency: 1024, Engines: 8, OSL: 256}, {Concurrency: 8192, Engines: 64, OSL: 64},
		{Concurrency: 3, Engines: 2, OSL: 256}, {Concurrency: 100, Engines: 7, OSL: 5}} {
		by := make(map[int][]int)
		for i := range l.Concurrency {
			n := firstLength(i, l)
			if n < 1 || n > l.OSL {
				t.Fatalf("%+v: slot %d has first length %d", l, i, n)
			}
			by[i%l.Engines] = append(by[i%l.Engines], n)
		}
		for e, lengths := range by {
			sum := 0
			for _, n := range lengths {
				sum += n
			}
			if len(lengths) < 8 {
				continue
			}
			if mean := float64(sum) / float64(len(lengths)); math.Abs(mean-float64(l.OSL+1)/2) > 0.1*float64(l.OSL) {
				t.Errorf("%+v: engine %d has a mean first length of %.1f", l, e, mean)
			}
		}
	}
}

// TestPhases: the passes of all engines are spread over the interval, in each process and over all.
func TestPhases(t *testing.T) {
	l := Load{Engines: 8, Interval: 80}
	seen := make(map[int64]bool)
	total := 0
	for process := range 3 {
		c := childConfig{Index: process, Processes: 3, Load: l}
		total += c.engines()
		for e := range c.engines() {
			seen[int64(c.phase(e))] = true
		}
	}
	if total != 8 || len(seen) != 8 {
		t.Errorf("%d engines with phases %v", total, seen)
	}
	for i := range 8 {
		if !seen[int64(i*10)] {
			t.Errorf("no engine has phase %d: %v", i*10, seen)
		}
	}
}

// TestEnoughIsToldWhenAsked: a frontend that is through with its share before the parent asks tells it then, and once.
func TestEnoughIsToldWhenAsked(t *testing.T) {
	var told []string
	f := &load{cfg: childConfig{Requests: 1}, tell: func(m message) { told = append(told, m.Op) }}
	f.measuring.Store(true)
	f.completed.Add(1)
	f.maybeEnough()
	if len(told) != 0 {
		t.Errorf("%v was told before it was asked for", told)
	}
	f.askEnough()
	f.maybeEnough()
	if len(told) != 1 || told[0] != opEnough {
		t.Errorf("%v was told, expected %q once", told, opEnough)
	}
}
