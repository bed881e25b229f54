package mux

import (
	"io"
	"runtime"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// A worker's open stream whose consumer keeps up holds nothing but its own state: no ring, no records, whatever it has
// sent.
func TestWorkersStreamsAreSmall(t *testing.T) {
	const streams, records, size, most = 8192, 40, 128, 2 << 10
	f := newRawFront(t, Config{}, memory.Config{TryWrite: true})
	l := f.dial(t)
	if err := f.greet(t, l, f.hello()); err != nil {
		t.Fatal(err)
	}
	f.worker = l.peer.OwnSecret
	done := make(chan struct{})
	go func() { // a frontend that keeps up and keeps nothing
		defer close(done)
		received, named := uint64(0), uint64(0)
		for {
			var head [wire.HeaderSize]byte
			if _, err := io.ReadFull(l.conn, head[:]); err != nil {
				return
			}
			h := wire.ParseHeader(head[:])
			if _, err := io.CopyN(io.Discard, l.conn, int64(h.Length)); err != nil {
				return
			}
			if h.Kind.Counted() {
				received += uint64(wire.HeaderSize + h.Length)
			}
			if received-named >= 32<<10 || h.Kind == wire.End {
				named = received
				if _, err := l.conn.Write(wire.AppendAck(nil, received)); err != nil {
					return
				}
			}
		}
	}()
	rec := make([]byte, size)
	outs := make([]*OutStream, streams)
	use := func(from, to int) {
		for i := from; i < to; i++ {
			outs[i] = f.attach(t, f.terms(l, uint32(i+1)))
			outs[i].OnWritable(func() {})
		}
		for range records {
			for _, out := range outs[from:to] {
				if err := out.TryPut(rec); err != nil {
					t.Fatal(err)
				}
			}
			f.send.Flush()
		}
		_ = outs[from].Complete(nil) // its END has all acknowledged
		waitFor(t, "all is acknowledged", func() bool { return f.send.Stats().LogBytes == 0 })
	}
	use(0, 64) // pools, tables and buffers are there
	before := heap()
	use(64, streams)
	each := (heap() - before) / (streams - 64)
	t.Logf("%d bytes each", each)
	if each > most {
		t.Errorf("an open stream holds %d bytes, at most %d are allowed", each, most)
	}
	runtime.KeepAlive(outs)
	for _, out := range outs {
		if out.Err() == nil {
			_ = out.Complete(nil)
		}
	}
	_ = l.conn.Close()
	<-done
}
