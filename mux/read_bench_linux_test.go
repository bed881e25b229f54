package mux

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/wire"
)

// benchConsumer is what a sink knows of its response: of another place in memory than the stream.
type benchConsumer struct {
	n     int
	bytes int
	_     [112]byte
}

func (c *benchConsumer) take(records [][]byte, _ error) bool {
	for _, r := range records {
		c.n++
		c.bytes += len(r) + int(r[0]) + int(r[len(r)-1])
	}
	return true
}

// BenchmarkRead is what a record costs the lane's reader, without its system calls: reads of one record on each of 128 streams, of 1,024.
// cold: other work has had the cache between two reads, as on a host where workers, the kernel and the application run too.
func BenchmarkRead(b *testing.B) {
	const streams, each = 1024, 128
	for _, cold := range []bool{false, true} {
		b.Run(fmt.Sprintf("cold=%t", cold), func(b *testing.B) {
			p := newPair(b, pairConfig{})
			s := newPasses(b, p, streams, 64)
			k := p.recv.peer(p.id).link.Load()
			l := k.upLanes()[0]
			reader := &inLane{lane: l, link: k}
			consumers := make([]*benchConsumer, streams)
			for i, in := range s.in {
				consumers[i] = new(benchConsumer)
				in.OnRecords(consumers[i].take, endAs)
			}
			s.put(b)
			waitFor(b, "the first records", func() bool {
				n := 0
				for _, in := range s.in {
					in.mu.Lock()
					n += int(in.records)
					in.mu.Unlock()
				}
				return n == streams
			})
			order := rand.New(rand.NewPCG(1, 2)).Perm(streams) // as responses come and go, neighbours part
			reads := make([][]byte, 0, streams/each)
			for i := 0; i < streams; i += each {
				var read []byte
				for _, at := range order[i : i+each] {
					read = wire.AppendHeader(read, wire.Data, len(s.recs[at]), s.in[at].slot)
					read = append(read, s.recs[at]...)
				}
				reads = append(reads, read)
			}
			other := make([]byte, 64<<20)
			b.ReportAllocs()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var took time.Duration
			n := 0
			for b.Loop() {
				for _, read := range reads {
					if cold {
						for i := 0; i < len(other); i += 64 {
							other[i]++
						}
						_ = append([]byte(nil), read...) // the kernel has just put it there
					}
					start := threadTime()
					skip := 0
					reader.warm(read)
					used, _, err := l.decode(reader, read, true, &skip)
					reader.batchDone(l)
					took += threadTime() - start
					if err != nil || used != len(read) {
						b.Fatalf("%d bytes of %d: %v", used, len(read), err)
					}
					n += each
				}
				for _, in := range s.in { // the worker has not sent them
					in.mu.Lock()
					in.received -= uint64(wire.HeaderSize + 64)
					in.mu.Unlock()
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took)/float64(n), "ns/record")
			for i, in := range s.in {
				in.mu.Lock()
				in.records, in.bytes = 1, 64
				in.mu.Unlock()
				_ = s.out[i].Complete(nil)
				_ = in.Close()
			}
		})
	}
}

// threadTime is the CPU time of the calling thread: other processes do not count.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
