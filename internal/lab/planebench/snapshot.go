package planebench

import (
	"runtime"

	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/transport"
)

// Usage is what a process has used and its plane has done since it began. The difference of two is a window's.
type Usage struct {
	UserNS   int64  `json:"user_ns"`
	SystemNS int64  `json:"system_ns"`
	Switches int64  `json:"switches"` // context switches, both kinds
	Mallocs  uint64 `json:"mallocs"`
	Alloc    uint64 `json:"alloc"` // bytes
	GCs      uint32 `json:"gcs"`

	Records   uint64 `json:"records"` // of the plane: in at a frontend, out at a worker
	Bytes     uint64 `json:"bytes"`
	Reads     uint64 `json:"reads"`
	Writes    uint64 `json:"writes"`
	Wakes     uint64 `json:"wakes"`
	SinkCalls uint64 `json:"sink_calls"`
	SinkSlow  uint64 `json:"sink_slow"`
	Stalls    uint64 `json:"stalls"`
	Forgotten uint64 `json:"forgotten"`
	Takeovers uint64 `json:"takeovers"`
	Resent    uint64 `json:"resent"`

	Taken     uint64 `json:"taken"`     // frontend: records in the consumers' hands
	Completed uint64 `json:"completed"` // frontend: responses that ended complete
	Passes    uint64 `json:"passes"`    // worker
	Late      uint64 `json:"late"`      // worker: passes late by more than an interval

	WritesBy map[string]uint64 `json:"writes_by"`

	Wire Wire `json:"wire"`
}

// Wire is what the transports of a process have counted below the plane; see transport.Counters.
type Wire struct {
	DatagramsIn  uint64 `json:"datagrams_in"`
	DatagramsOut uint64 `json:"datagrams_out"`
	PacketsLost  uint64 `json:"packets_lost"`
	LibraryDrops uint64 `json:"library_drops"`
	SocketDrops  uint64 `json:"socket_drops"`
	RecvCalls    uint64 `json:"recv_calls"`
	SendCalls    uint64 `json:"send_calls"`
}

// readWire sums over the transports.
func readWire(transports []transport.Transport) (w Wire) {
	for _, t := range transports {
		c := t.Counters()
		w = w.add(Wire{c.DatagramsIn, c.DatagramsOut, c.PacketsLost, c.LibraryDrops, c.SocketDrops, c.RecvCalls,
			c.SendCalls})
	}
	return w
}

func (w Wire) add(o Wire) Wire {
	return Wire{
		DatagramsIn:  w.DatagramsIn + o.DatagramsIn,
		DatagramsOut: w.DatagramsOut + o.DatagramsOut,
		PacketsLost:  w.PacketsLost + o.PacketsLost,
		LibraryDrops: w.LibraryDrops + o.LibraryDrops,
		SocketDrops:  w.SocketDrops + o.SocketDrops,
		RecvCalls:    w.RecvCalls + o.RecvCalls,
		SendCalls:    w.SendCalls + o.SendCalls,
	}
}

// sub is what was counted since an earlier reading. A packet that counted as lost may still be acknowledged.
func (w Wire) sub(o Wire) Wire {
	return Wire{
		DatagramsIn:  w.DatagramsIn - min(o.DatagramsIn, w.DatagramsIn),
		DatagramsOut: w.DatagramsOut - min(o.DatagramsOut, w.DatagramsOut),
		PacketsLost:  w.PacketsLost - min(o.PacketsLost, w.PacketsLost),
		LibraryDrops: w.LibraryDrops - min(o.LibraryDrops, w.LibraryDrops),
		SocketDrops:  w.SocketDrops - min(o.SocketDrops, w.SocketDrops),
		RecvCalls:    w.RecvCalls - min(o.RecvCalls, w.RecvCalls),
		SendCalls:    w.SendCalls - min(o.SendCalls, w.SendCalls),
	}
}

// takeovers is how often lanes went on over another connection.
func takeovers(st mux.Stats) (n uint64) {
	for _, t := range st.LaneTakeovers {
		n += t.Count
	}
	return n
}

// readUsage reads what the kernel, the runtime and the plane say of this process.
func readUsage(st mux.Stats) Usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := Usage{
		Mallocs: m.Mallocs, Alloc: m.TotalAlloc, GCs: m.NumGC,
		Records: st.RecordsIn + st.RecordsOut, Bytes: st.BytesIn + st.BytesOut, Reads: st.Reads, Wakes: st.Wakes,
		SinkCalls: st.SinkCalls, SinkSlow: st.SinkSlow, Stalls: st.WindowStalls, Forgotten: st.ForgottenFlushes,
		Takeovers: takeovers(st), Resent: st.ResentBytes,
		WritesBy: st.Writes,
	}
	for _, n := range st.Writes {
		u.Writes += n
	}
	u.UserNS, u.SystemNS, u.Switches = rusage()
	return u
}

// sub is what was used since an earlier reading.
func (u Usage) sub(o Usage) Usage {
	by := make(map[string]uint64, len(u.WritesBy))
	for reason, n := range u.WritesBy {
		by[reason] = n - o.WritesBy[reason]
	}
	return Usage{
		UserNS: u.UserNS - o.UserNS, SystemNS: u.SystemNS - o.SystemNS, Switches: u.Switches - o.Switches,
		Mallocs: u.Mallocs - o.Mallocs, Alloc: u.Alloc - o.Alloc, GCs: u.GCs - o.GCs,
		Records: u.Records - o.Records, Bytes: u.Bytes - o.Bytes, Reads: u.Reads - o.Reads, Writes: u.Writes - o.Writes,
		Wakes:     u.Wakes - o.Wakes,
		SinkCalls: u.SinkCalls - o.SinkCalls, SinkSlow: u.SinkSlow - o.SinkSlow, Stalls: u.Stalls - o.Stalls,
		Forgotten: u.Forgotten - o.Forgotten,
		Wire:      u.Wire.sub(o.Wire), Takeovers: u.Takeovers - o.Takeovers, Resent: u.Resent - o.Resent,
		Taken: u.Taken - o.Taken, Completed: u.Completed - o.Completed, Passes: u.Passes - o.Passes,
		Late:     u.Late - o.Late,
		WritesBy: by,
	}
}

// add is the sum over processes.
func (u Usage) add(o Usage) Usage {
	by := make(map[string]uint64)
	for reason, n := range u.WritesBy {
		by[reason] += n
	}
	for reason, n := range o.WritesBy {
		by[reason] += n
	}
	return Usage{
		UserNS: u.UserNS + o.UserNS, SystemNS: u.SystemNS + o.SystemNS, Switches: u.Switches + o.Switches,
		Mallocs: u.Mallocs + o.Mallocs, Alloc: u.Alloc + o.Alloc, GCs: u.GCs + o.GCs,
		Records: u.Records + o.Records, Bytes: u.Bytes + o.Bytes, Reads: u.Reads + o.Reads, Writes: u.Writes + o.Writes,
		Wakes:     u.Wakes + o.Wakes,
		SinkCalls: u.SinkCalls + o.SinkCalls, SinkSlow: u.SinkSlow + o.SinkSlow, Stalls: u.Stalls + o.Stalls,
		Forgotten: u.Forgotten + o.Forgotten,
		Wire:      u.Wire.add(o.Wire), Takeovers: u.Takeovers + o.Takeovers, Resent: u.Resent + o.Resent,
		Taken: u.Taken +
			o.Taken, Completed: u.Completed + o.Completed, Passes: u.Passes + o.Passes, Late: u.Late + o.Late,
		WritesBy: by,
	}
}
