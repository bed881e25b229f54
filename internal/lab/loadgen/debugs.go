package loadgen

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// debugs gathers what the frontends' /debug/plane said during a run.
type debugs struct {
	sockets map[string][]report.Socket // by frontend, the latest
	ports   map[int]int                // lane of a frontend's socket, by its port
	lanes   map[laneKey]laneSeen
}

type laneKey struct {
	frontend, worker string
	lane             int
}

type laneSeen struct {
	streams int64 // the most that were open at a reading
	bytes   int64 // that came over it, at the latest reading
}

func (d *debugs) add(frontend string, p *planeDebug) {
	if d.lanes == nil {
		d.sockets, d.ports, d.lanes = map[string][]report.Socket{}, map[int]int{}, map[laneKey]laneSeen{}
	}
	d.sockets[frontend] = nil
	for _, s := range p.Sockets {
		if s.Process == "" {
			s.Process = frontend
		}
		d.sockets[frontend] = append(d.sockets[frontend], s)
	}
	for _, l := range p.Stats.Lanes {
		name := l.PeerName
		if name == "" {
			name = l.Remote
		}
		if a, err := netip.ParseAddrPort(l.Local); err == nil {
			d.ports[int(a.Port())] = l.Lane
		}
		k := laneKey{frontend, name, l.Lane}
		d.lanes[k] = laneSeen{streams: max(d.lanes[k].streams, l.Streams), bytes: l.BytesIn}
	}
}

// reportLanes lists the lanes: the worker process at the other end, the most streams that were seen open, and the bytes
// that came.
func (d *debugs) reportLanes() []report.Lane {
	var out []report.Lane
	for k, v := range d.lanes {
		out = append(out, report.Lane{Process: k.worker, Lane: k.lane, Streams: report.Ptr(v.streams),
			Bytes: report.Ptr(v.bytes)})
	}
	slices.SortFunc(out, func(a, b report.Lane) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Lane, b.Lane), cmp.Compare(*a.Bytes, *b.Bytes))
	})
	return out
}

// reportSockets lists the sockets of all frontends.
func (d *debugs) reportSockets() []report.Socket {
	var out []report.Socket
	for _, s := range d.sockets {
		out = append(out, s...)
	}
	slices.SortFunc(out, func(a, b report.Socket) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// laneOf is the lane of a frontend's socket, nil when nobody said.
func (d *debugs) laneOf(port int) *int {
	if lane, ok := d.ports[port]; ok {
		return &lane
	}
	return nil
}
