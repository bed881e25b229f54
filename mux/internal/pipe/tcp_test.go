package pipe

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
	"github.com/laneway-ai/laneway/transport/tcp"
)

// stream is two pipes over a transport of this machine, of which the worker talks.
type stream struct {
	g      *rig
	heard  atomic.Int64 // records
	wanted atomic.Int64 // by await
	there  chan struct{}
}

// tally is a frontend's handler that counts.
type tally struct {
	node
	s *stream
	n int64
}

func (c *tally) Record(wire.Header, []byte) error { c.n++; return nil }
func (c *tally) BatchDone() {
	if c.s.heard.Store(c.n); c.n >= c.s.wanted.Load() {
		select {
		case c.s.there <- struct{}{}:
		default:
		}
	}
}

// planes are the transports over which pipes are measured.
var planes = map[string]func() (a, b transport.Transport, err error){
	"tcp": func() (a, b transport.Transport, err error) {
		var errA, errB error
		a, errA = tcp.New(tcp.Config{})
		b, errB = tcp.New(tcp.Config{})
		return a, b, errors.Join(errA, errB)
	},
	"memory": func() (a, b transport.Transport, err error) {
		n := memory.NewNetwork(memory.Config{TryWrite: true})
		return n.Transport(transport.NodeID{1}), n.Transport(transport.NodeID{2}), nil
	},
}

func newStream(t testing.TB, plane string, cfg Config) *stream {
	s := &stream{g: newRig(t, rigConfig{Config: cfg}), there: make(chan struct{}, 1)}
	s.g.front().pipe.handler = &tally{node: node{t: t}, s: s}
	a, b, err := planes[plane]()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := b.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	dialled, err := a.Dial(t.Context(), transport.DialRequest{Address: ln.Endpoints()[0].String()})
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.g.connect(dialled, accepted)
	t.Cleanup(func() {
		s.g.stop()
		_ = a.Close()
		_ = b.Close()
		for _, n := range s.g.nodes {
			n.checkEmpty()
		}
	})
	return s
}

// pass is an engine's pass: a record on each of n streams, one Flush.
func (s *stream) pass(n int, body []byte) {
	p := s.g.worker().pipe
	for i := range n {
		p.Lock()
		p.Append(Bulk, wire.Data, wire.MakeSlot(uint32(1+i), 0), body)
		p.Unlock()
	}
	p.Flush(ByFlush)
}

// await waits until n records were heard in all.
func (s *stream) await(n int64) {
	s.wanted.Store(n)
	for s.heard.Load() < n {
		<-s.there
	}
}

// TestNothingIsAllocated appends, flushes, reads and acknowledges, over the log's limit many times.
func TestNothingIsAllocated(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	for plane := range planes {
		for _, noInline := range []bool{false, true} {
			t.Run(fmt.Sprint(plane, ", inline ", !noInline), func(t *testing.T) {
				s := newStream(t, plane, Config{NoInline: noInline})
				body := make([]byte, 64)
				n := int64(0)
				pass := func() {
					s.pass(64, body)
					n += 64
					s.await(n)
				}
				for range 300 { // 1.4 MB
					pass()
				}
				if got := testing.AllocsPerRun(500, pass); got != 0 {
					t.Errorf("%v allocations a pass", got)
				}
				if acks := s.g.front().stats.AcksAlone.Load(); acks < 30 {
					t.Errorf("%d ACKs", acks)
				}
			})
		}
	}
}

// BenchmarkPipe is a worker's pass and the frontend's read of it, over loopback.
func BenchmarkPipe(b *testing.B) {
	for _, records := range []int{1, 16, 128} {
		for _, noInline := range []bool{false, true} {
			b.Run(fmt.Sprintf("records=%d/inline=%v", records, !noInline), func(b *testing.B) {
				s := newStream(b, "tcp", Config{NoInline: noInline, LogLimit: 4 << 20})
				body := make([]byte, 64)
				b.SetBytes(int64(records * (wire.HeaderSize + len(body))))
				b.ReportAllocs()
				n := int64(0)
				for b.Loop() {
					s.pass(records, body)
					n += int64(records)
					s.await(n)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
			})
		}
	}
}

// BenchmarkStream is the same without waiting for each pass: writes and reads merge.
func BenchmarkStream(b *testing.B) {
	for _, gap := range []time.Duration{0, 2 * time.Millisecond} {
		b.Run(fmt.Sprint("gap=", gap), func(b *testing.B) {
			s := newStream(b, "tcp", Config{LogLimit: 4 << 20, Gap: gap})
			body := make([]byte, 64)
			b.SetBytes(16 * int64(wire.HeaderSize+len(body)))
			b.ReportAllocs()
			n := int64(0)
			for b.Loop() {
				s.pass(16, body)
				n += 16
				s.await(n - 64<<10)
			}
			s.await(n)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
		})
	}
}

// BenchmarkReplay sends a whole log again, in pieces as small as writes of one record make them.
func BenchmarkReplay(b *testing.B) {
	g := newRig(b, rigConfig{Config: Config{LogLimit: 4 << 20}})
	p := g.worker().pipe
	for i := range 30_000 {
		p.Append(Place(i%2), wire.Data, wire.MakeSlot(1, 0), make([]byte, 64))
		p.Lock()
		p.take(&p.places[i%2], maxChunk)
		p.release()
		p.Unlock()
	}
	p.cfg.Budget.addLog(int(p.sealed))
	b.SetBytes(int64(p.sealed))
	for b.Loop() {
		for p.cursor = 0; p.cursor < p.sealed; {
			p.replay(bulkPerWrite)
			p.release()
		}
	}
	g.worker().checkEmpty()
}
