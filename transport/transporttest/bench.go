package transporttest

import (
	"io"
	"testing"

	"github.com/laneway-ai/laneway/transport"
)

// BenchStream measures one lane that is kept full from the acceptor to the dialler with writes of size bytes.
func BenchStream(b *testing.B, f Factory, size int) {
	dialer, _ := f.New(b)
	acceptor, id := f.New(b)
	defer dialer.Close()
	defer acceptor.Close()
	d, a := benchLane(b, f, dialer, acceptor, id)
	defer d.Close()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	total := int64(b.N) * int64(size)
	go func() {
		buf := make([]byte, size)
		for range b.N {
			if _, err := a.Write(buf); err != nil {
				b.Errorf("write: %v", err)
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	reads := 0
	for got := int64(0); got < total; reads++ {
		n, err := d.Read(buf)
		if err != nil {
			b.Fatalf("read: %v", err)
		}
		got += int64(n)
	}
	b.StopTimer()
	b.ReportMetric(float64(reads)/(float64(total)/(1<<20)), "reads/MiB")
	if c := dialer.Counters(); c.PacketsIn > 0 {
		b.ReportMetric(float64(c.PacketsIn)/(float64(total)/(1<<20)), "packets/MiB")
		b.ReportMetric(float64(c.LibraryDrops), "library-drops")
		b.ReportMetric(float64(acceptor.Counters().PacketsLost), "lost")
	}
}

// BenchEcho measures round trips of size bytes, one at a time.
func BenchEcho(b *testing.B, f Factory, size int) {
	dialer, _ := f.New(b)
	acceptor, id := f.New(b)
	defer dialer.Close()
	defer acceptor.Close()
	d, a := benchLane(b, f, dialer, acceptor, id)
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
	b.ResetTimer()
	for range b.N {
		if _, err := d.Write(buf); err != nil {
			b.Fatalf("write: %v", err)
		}
		if _, err := io.ReadFull(d, buf); err != nil {
			b.Fatalf("read: %v", err)
		}
	}
}

func benchLane(b *testing.B, f Factory, dialer, acceptor transport.Transport, id transport.NodeID) (d, a transport.Conn) {
	b.Helper()
	ln, err := acceptor.Listen(b.Context(), f.Bind, 1)
	if err != nil {
		b.Fatalf("listen: %v", err)
	}
	if d, err = dialer.Dial(b.Context(), transport.DialRequest{Address: ln.Endpoints()[0].String(), Peer: id}); err != nil {
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
