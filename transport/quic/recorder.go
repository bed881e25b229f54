package quic

import (
	"context"
	"sync/atomic"

	quicgo "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// recorder counts the packets that quic-go drops because a connection's queue is full (256 packets). No counter of quic-go or
// of the kernel shows them, only this event. It looks at nothing else and keeps nothing. quic-go builds an event for every packet
// all the same (7 allocations a packet, measured with v0.65), so only the connections of endpoints have one; see pace for lanes.
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
