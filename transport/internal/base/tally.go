package base

import (
	"sync/atomic"

	"github.com/laneway-ai/laneway/transport"
)

// Tally counts for the totals that every plane has.
type Tally struct {
	BytesIn, BytesOut                        atomic.Uint64
	RecvCalls, SendCalls                     atomic.Uint64
	Dials, DialErrors, Accepts, AcceptErrors atomic.Uint64
}

// Counters are the totals now.
func (t *Tally) Counters() transport.Counters {
	return transport.Counters{
		BytesIn: t.BytesIn.Load(), BytesOut: t.BytesOut.Load(),
		RecvCalls: t.RecvCalls.Load(), SendCalls: t.SendCalls.Load(),
		Dials: t.Dials.Load(), DialErrors: t.DialErrors.Load(),
		Accepts: t.Accepts.Load(), AcceptErrors: t.AcceptErrors.Load(),
	}
}
