package quic

import (
	"context"
	"sync/atomic"

	quicgo "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// recorder counts the packets that quic-go drops because a queue is full. It looks at nothing else and keeps nothing.
// An endpoint has one for the queue of those who begin a handshake. A connection with one costs: quic-go builds an
// event for every packet (7 allocations, measured with v0.65). So connections have one only where nothing else tells;
// see traces.
type recorder struct{ drops *atomic.Uint64 }

var (
	_ qlogwriter.Trace    = recorder{}
	_ qlogwriter.Recorder = recorder{}
)

// AddProducer implements qlogwriter.Trace.
func (r recorder) AddProducer() qlogwriter.Recorder { return r }

// RecordEvent implements qlogwriter.Recorder.
func (r recorder) RecordEvent(e qlogwriter.Event) {
	if d, ok := e.(qlog.PacketDropped); ok && d.Trigger == qlog.PacketDropDOSPrevention {
		r.drops.Add(1)
	}
}

// Close implements qlogwriter.Recorder.
func (recorder) Close() error { return nil }

func (r recorder) tracer(context.Context, bool, quicgo.ConnectionID) qlogwriter.Trace { return r }
