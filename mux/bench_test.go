//go:build unix

package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// benchCase is one row: what its name says, in key=value pairs.
type benchCase struct {
	plane   string
	streams int
	record  int // bytes
	lanes   int
	arrival string // burst: a pass puts its records and flushes once; spread: a Flush for each record
	consume string // pull: a goroutine a stream; sink
	gap     int    // ms, 0 = off
}

func (c benchCase) String() string {
	return fmt.Sprintf("plane=%s/streams=%d/record=%d/lanes=%d/arrival=%s/consume=%s/gap=%d", c.plane, c.streams,
		c.record, c.lanes, c.arrival, c.consume, c.gap)
}

// benchBase is what a sweep varies.
var benchBase = benchCase{streams: 1024, record: 64, lanes: 1, arrival: "burst", consume: "sink", gap: 2}

var benchPlanes = []string{transport.PlaneMemory, transport.PlaneTCP, transport.PlaneQUIC}

// sweep lists the cases of each plane: every setting of streams with every record size, then each other setting by
// itself.
func sweep() (cases []benchCase) {
	for _, plane := range benchPlanes {
		add := func(change func(*benchCase)) {
			c := benchBase
			c.plane = plane
			change(&c)
			cases = append(cases, c)
		}
		for _, streams := range []int{1, 64, 1024, 8192} {
			for _, record := range []int{64, 16 << 10} {
				add(func(c *benchCase) { c.streams, c.record = streams, record })
			}
		}
		for _, lanes := range []int{2, 4} {
			add(func(c *benchCase) { c.lanes = lanes })
		}
		add(func(c *benchCase) { c.consume = "pull" })
		for _, arrival := range []string{"burst", "spread"} {
			for _, gap := range []int{0, 1, 2, 3} {
				if arrival != benchBase.arrival || gap != benchBase.gap {
					add(func(c *benchCase) { c.arrival, c.gap = arrival, gap })
				}
			}
		}
	}
	return cases
}

// benchPair connects the two sides of a case.
func benchPair(b *testing.B, c benchCase) *pair {
	gap := time.Duration(c.gap) * time.Millisecond
	if gap == 0 {
		gap = -1
	}
	p, _, _ := newPlanePair(b, c.plane, pairConfig{recv: Config{Lanes: c.lanes, GapMax: gap, MaxBuffered: 64 << 30},
		send: Config{GapMax: gap, MaxReplay: 64 << 30}, mem: memory.Config{TryWrite: true}})
	return p
}

// benchLoad is streams with consumers; take is called with each record.
type benchLoad struct {
	p       *pair
	consume string
	take    func(rec []byte)
	out     []*OutStream
	pulls   sync.WaitGroup
}

// open puts a new stream into a place.
func (l *benchLoad) open(b *testing.B, place int) {
	in, out := l.p.open(b)
	l.out[place] = out
	if l.consume == "sink" {
		in.onRecords(func(recs [][]byte, _ *End) bool {
			for _, rec := range recs {
				l.take(rec)
			}
			return true
		})
		return
	}
	l.pulls.Go(func() {
		defer in.Close()
		for {
			batch, err := in.NextBatch(b.Context())
			if err != nil {
				return
			}
			for _, rec := range batch {
				l.take(rec)
			}
		}
	})
}

func (l *benchLoad) put(b *testing.B, place int, rec []byte) {
	for {
		err := l.out[place].TryPut(rec)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrWindowFull) {
			b.Fatal(err)
		}
		l.p.send.Flush()
		runtime.Gosched()
	}
}

func (l *benchLoad) finish(b *testing.B) {
	for _, out := range l.out {
		_ = out.Complete(nil)
	}
	l.pulls.Wait()
	l.p.settled(b)
}

// BenchmarkThroughput puts one record on each stream and waits until all are taken: what a record costs when nothing
// rests.
func BenchmarkThroughput(b *testing.B) {
	for _, c := range sweep() {
		b.Run(c.String(), func(b *testing.B) {
			var taken, want atomic.Int64
			done := make(chan struct{}, 1)
			l := &benchLoad{p: benchPair(b, c), consume: c.consume, out: make([]*OutStream, c.streams)}
			l.take = func([]byte) {
				if n := taken.Add(1); n == want.Load() {
					done <- struct{}{}
				}
			}
			for i := range l.out {
				l.open(b, i)
			}
			rec := make([]byte, c.record)
			pass := func() {
				want.Add(int64(c.streams))
				for i := range l.out {
					l.put(b, i, rec)
					if c.arrival == "spread" {
						l.out[i].Flush()
					}
				}
				l.p.send.Flush()
				<-done
			}
			pass()
			before, cpu := l.p.send.Stats(), cpuTime()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				pass()
				n += c.streams
			}
			b.ReportMetric(float64(cpuTime()-cpu)/float64(n), "cpu-ns/record")
			b.ReportMetric(float64(b.Elapsed())/float64(n), "ns/record")
			b.ReportMetric(float64(n)/float64(writes(l.p.send.Stats())-writes(before)), "records/write")
			l.finish(b)
		})
	}
}

// Paced load: the same records a second for any number of streams. A step of 2.5 ms serves the next group of streams;
// a stream lives for benchLife records, so that there are always first records.
const (
	benchStep  = 2500 * time.Microsecond
	benchGroup = 64
	benchLife  = 16
)

// BenchmarkDelay serves streams at a pace and measures the delivery delay: from the engine's stamp to the frontend's
// hands, of all records and of first ones, and the CPU of both sides.
func BenchmarkDelay(b *testing.B) {
	for _, c := range sweep() {
		b.Run(c.String(), func(b *testing.B) { benchDelay(b, c) })
	}
}

func benchDelay(b *testing.B, c benchCase) {
	group := min(benchGroup, c.streams)
	if c.record > 1024 {
		group = min(4, c.streams) // 26 MB/s
	}
	epoch := time.Now()
	all, first := newDelays(), newDelays()
	l := &benchLoad{p: benchPair(b, c), consume: c.consume, out: make([]*OutStream, c.streams)}
	l.take = func(rec []byte) {
		d := time.Since(epoch) - time.Duration(binary.BigEndian.Uint64(rec))
		all.add(d)
		if rec[8] == 1 {
			first.add(d)
		}
	}
	age := make([]int, c.streams)
	for i := range l.out {
		l.open(b, i)
		age[i] = i % benchLife
	}
	rec := make([]byte, c.record)
	at, n := 0, 0
	step := func() {
		if at%group == 0 { // the stamp is the pass's
			binary.BigEndian.PutUint64(rec, uint64(time.Since(epoch)))
		}
		for range group {
			if c.arrival == "spread" {
				binary.BigEndian.PutUint64(rec, uint64(time.Since(epoch)))
			}
			if age[at]++; age[at] > benchLife {
				_ = l.out[at].PutEnd(End{Type: EndComplete}) // goes with the pass
				l.open(b, at)
				age[at] = 1
			}
			rec[8] = 0
			if age[at] == 1 {
				rec[8] = 1
			}
			l.put(b, at, rec)
			if c.arrival == "spread" {
				l.out[at].Flush()
			}
			at = (at + 1) % c.streams
			n++
		}
		l.p.send.Flush()
	}
	next := time.Now()
	pace := func() {
		next = next.Add(benchStep)
		time.Sleep(time.Until(next))
	}
	for range 100 {
		step()
		pace()
	}
	all.reset()
	first.reset()
	before, cpu := l.p.send.Stats(), cpuTime()
	n = 0
	for b.Loop() {
		step()
		pace()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(cpuTime()-cpu)/float64(n), "cpu-ns/record")
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(n)/float64(writes(l.p.send.Stats())-writes(before)), "records/write")
	all.report(b, "")
	first.report(b, "first-")
	l.finish(b)
}

// BenchmarkFirstRecordOnTheWire measures from the engine's Send of a first record, on an idle lane, to the lane's
// write: when the engine's goroutine parks afterwards, and when it goes on computing for 2 ms.
func BenchmarkFirstRecordOnTheWire(b *testing.B) {
	for _, plane := range []string{transport.PlaneMemory, transport.PlaneTCP, transport.PlaneTLS, transport.PlaneQUIC} {
		for _, engine := range []string{"parks", "computes"} {
			for _, inline := range []bool{true, false} {
				if !inline && plane != transport.PlaneMemory && plane != transport.PlaneTCP {
					continue // these have no other
				}
				b.Run(fmt.Sprintf("plane=%s/engine=%s/inline=%t", plane, engine, inline), func(b *testing.B) {
					p, _, work := newPlanePair(b, plane, pairConfig{send: Config{NoInlineWrite: !inline},
						mem: memory.Config{TryWrite: true}})
					var wrote atomic.Int64
					epoch := time.Now()
					see := func([]byte) { wrote.CompareAndSwap(0, int64(time.Since(epoch))) }
					work.onWrite.Store(&see)
					d := newDelays()
					for b.Loop() {
						in, out := p.open(b)
						time.Sleep(3 * time.Millisecond) // longer than the gap: the lane is idle
						wrote.Store(0)
						start := time.Since(epoch)
						if err := out.TrySend(make([]byte, 64)); err != nil {
							b.Fatal(err)
						}
						if engine == "computes" {
							for time.Since(epoch)-start < 2*time.Millisecond {
							}
						}
						if _, err := in.Next(b.Context()); err != nil {
							b.Fatal(err)
						}
						d.add(time.Duration(wrote.Load()) - start)
						_ = out.Complete(nil)
						_ = in.Close()
					}
					b.ReportMetric(0, "ns/op")
					d.report(b, "")
					p.settled(b)
				})
			}
		}
	}
}

// delays counts durations by the microsecond, up to 200 ms.
type delays struct{ counts []atomic.Uint32 }

func newDelays() *delays { return &delays{make([]atomic.Uint32, 200_001)} }

func (d *delays) add(v time.Duration) {
	d.counts[min(max(int(v/time.Microsecond), 0), len(d.counts)-1)].Add(1)
}

func (d *delays) reset() {
	for i := range d.counts {
		d.counts[i].Store(0)
	}
}

// report gives the percentiles in milliseconds; without a value it says nothing.
func (d *delays) report(b *testing.B, name string) {
	total := uint64(0)
	for i := range d.counts {
		total += uint64(d.counts[i].Load())
	}
	if total == 0 {
		return
	}
	for _, p := range []struct {
		unit  string
		share float64
	}{{"p50-ms", 0.5}, {"p99-ms", 0.99}, {"p99.9-ms", 0.999}} {
		seen := uint64(0)
		for i := range d.counts {
			if seen += uint64(d.counts[i].Load()); float64(seen) >= p.share*float64(total) {
				b.ReportMetric(float64(i)/1000, name+p.unit)
				break
			}
		}
	}
}

func writes(s Stats) (n uint64) {
	for _, w := range s.RecordsPerWrite { // those with records
		n += w
	}
	return n
}

// cpuTime is the user and system time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
