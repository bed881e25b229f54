package transporttest

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/laneway-ai/laneway/transport"
)

// Load is what BenchStream carries.
type Load struct {
	Lanes int // each with a socket of its own
	Ports int // endpoints of the acceptor, over which the lanes are spread
	Write int // bytes of a write
}

// String names the load by its numbers, key=value, as benchstat wants it.
func (l Load) String() string {
	return fmt.Sprintf("lanes=%d/ports=%d/write=%d", l.Lanes, l.Ports, l.Write)
}

// mib is what an iteration of BenchStream carries, over all lanes.
const mib = 1 << 20

// BenchStream measures lanes that are kept full from the acceptor to the dialler, as a worker's are. It reports, for a
// MiB, the CPU time of both ends (they share the process), datagrams and calls, and the drops by kind over the whole
// measurement.
func BenchStream(b *testing.B, f Factory, load Load) {
	dialer, _ := f.New(b)
	acceptor, id := f.New(b)
	defer dialer.Close()
	defer acceptor.Close()
	ln, err := acceptor.Listen(b.Context(), f.Bind, load.Ports)
	if err != nil {
		b.Fatalf("listen: %v", err)
	}
	ds, as := make([]transport.Conn, load.Lanes), make([]transport.Conn, load.Lanes)
	for i := range ds {
		ds[i], as[i] = benchLane(b, ln, dialer, id, i)
	}
	total := max(b.N*mib/load.Lanes/load.Write, 1) * load.Write // of a lane
	b.SetBytes(mib)
	b.ReportAllocs()
	var reads atomic.Int64
	var wg sync.WaitGroup
	d0, a0, c0 := dialer.Counters(), acceptor.Counters(), cpuTime()
	b.ResetTimer()
	for i := range ds {
		wg.Go(func() {
			buf := make([]byte, load.Write)
			for sent := 0; sent < total; sent += len(buf) {
				if _, err := as[i].Write(buf); err != nil {
					b.Errorf("write: %v", err)
					ds[i].Close()
					return
				}
			}
		})
		wg.Go(func() {
			buf := make([]byte, 64<<10)
			n := int64(0)
			for got := 0; got < total; n++ {
				m, err := ds[i].Read(buf)
				if err != nil {
					b.Errorf("read: %v", err)
					return
				}
				got += m
			}
			reads.Add(n)
		})
	}
	wg.Wait()
	b.StopTimer()
	d1, a1 := dialer.Counters(), acceptor.Counters()
	per := func(n float64, unit string) { b.ReportMetric(n/(float64(total*load.Lanes)/mib), unit) }
	if c1 := cpuTime(); c1 > c0 {
		per(float64((c1-c0).Microseconds())/1000, "cpu-ms/MiB")
	}
	per(float64(reads.Load()), "reads/MiB")
	per(float64(d1.RecvCalls-d0.RecvCalls), "recv-calls/MiB")
	per(float64(a1.SendCalls-a0.SendCalls), "send-calls/MiB")
	if f.Network == "udp" {
		per(float64(d1.DatagramsIn-d0.DatagramsIn), "datagrams/MiB")
		b.ReportMetric(float64(d1.SocketDrops-d0.SocketDrops+a1.SocketDrops-a0.SocketDrops), "socket-drops")
		b.ReportMetric(float64(d1.LibraryDrops-d0.LibraryDrops+a1.LibraryDrops-a0.LibraryDrops), "library-drops")
		b.ReportMetric(float64(a1.PacketsLost-min(a0.PacketsLost, a1.PacketsLost)), "lost")
	}
}

// BenchEcho measures round trips of size bytes, one at a time.
func BenchEcho(b *testing.B, f Factory, size int) {
	dialer, _ := f.New(b)
	acceptor, id := f.New(b)
	defer dialer.Close()
	defer acceptor.Close()
	ln, err := acceptor.Listen(b.Context(), f.Bind, 1)
	if err != nil {
		b.Fatalf("listen: %v", err)
	}
	d, a := benchLane(b, ln, dialer, id, 0)
	go func() {
		buf := make([]byte, size)
		for {
			if _, err := io.ReadFull(a, buf); err != nil {
				return
			}
			if _, err := a.Write(buf); err != nil {
				return
			}
		}
	}()
	defer d.Close()
	buf := make([]byte, size)
	b.ReportAllocs()
	c0 := cpuTime()
	b.ResetTimer()
	for range b.N {
		if _, err := d.Write(buf); err != nil {
			b.Fatalf("write: %v", err)
		}
		if _, err := io.ReadFull(d, buf); err != nil {
			b.Fatalf("read: %v", err)
		}
	}
	b.StopTimer()
	if c1 := cpuTime(); c1 > c0 {
		b.ReportMetric(float64((c1-c0).Microseconds())/float64(b.N), "cpu-us/op")
	}
}

// benchLane opens lane i.
func benchLane(b *testing.B, ln transport.Listener, dialer transport.Transport, id transport.NodeID, i int) (d,
	a transport.Conn) {
	b.Helper()
	eps := ln.Endpoints()
	d, err := dialer.Dial(b.Context(), transport.DialRequest{Address: eps[i%len(eps)].String(), Peer: id, Lane: i})
	if err != nil {
		b.Fatalf("dial: %v", err)
	}
	if _, err := d.Write([]byte{1}); err != nil {
		b.Fatalf("first write: %v", err)
	}
	if a, err = ln.Accept(b.Context()); err != nil {
		b.Fatalf("accept: %v", err)
	}
	if _, err := io.ReadFull(a, make([]byte, 1)); err != nil {
		b.Fatalf("first read: %v", err)
	}
	return d, a
}
