package main

import (
	"net/http"

	"github.com/laneway-ai/laneway/internal/admin"
	"github.com/laneway-ai/laneway/internal/planeflags"
	"github.com/laneway-ai/laneway/internal/report"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// debugView is what /debug/plane shows of a worker process. What it has in common with a frontend's has the same names; sockets have the shape
// of a run report's.
type debugView struct {
	Process string                   `json:"process"`
	Ready   bool                     `json:"ready"`
	Reason  string                   `json:"reason,omitempty"` // why not
	Open    int                      `json:"open_requests"`
	Model   string                   `json:"model"`
	Node    responseplane.Descriptor `json:"node"`
	Engines []debugEngine            `json:"engines"`
	Sockets []debugSocket            `json:"sockets"`
	Stats   responseplane.Stats      `json:"stats"`
	Config  map[string]string        `json:"config"`
	// Settings are the transports', as asked for and in force.
	Settings []planeflags.Setting `json:"settings"`
}

type debugEngine struct {
	Worker  string `json:"worker"`
	Running int    `json:"running"`
	Waiting int    `json:"waiting"`
}

// debugSocket is a socket as it stands in a run's report, and what it has counted.
type debugSocket struct {
	report.Socket
	Plane      string `json:"plane"`
	Drops      uint64 `json:"drops"`
	PacketsIn  uint64 `json:"packets_in"`
	PacketsOut uint64 `json:"packets_out"`
}

func (p *process) serveDebug(w http.ResponseWriter, _ *http.Request) {
	admin.WriteJSON(w, p.debug())
}

func (p *process) debug() debugView {
	d := debugView{
		Process: p.s.name, Ready: true, Model: p.s.model, Node: p.worker.Descriptor(), Stats: p.worker.Stats(), Config: p.s.values,
		Engines: make([]debugEngine, len(p.engines)), Sockets: []debugSocket{},
	}
	if err := p.ready(); err != nil {
		d.Ready, d.Reason = false, err.Error()
	}
	for i, e := range p.engines {
		running, waiting := e.Load()
		d.Engines[i] = debugEngine{Worker: p.workerID(i), Running: running, Waiting: waiting}
		d.Open += running + waiting
	}
	var sockets []transport.SocketInfo
	for _, t := range p.transports {
		sockets = append(sockets, t.Sockets()...)
	}
	for _, s := range sockets {
		d.Sockets = append(d.Sockets, socketOf(p.s.name, s))
	}
	d.Settings = p.s.plane.InForce(sockets)
	return d
}

// socketOf leaves out what a plane does not have.
func socketOf(process string, s transport.SocketInfo) debugSocket {
	size := func(n int) *int64 {
		if n == 0 {
			return nil
		}
		return report.Ptr(int64(n))
	}
	d := debugSocket{
		Socket: report.Socket{
			Process: process, Role: s.Role, Port: s.Port,
			RecvAsked: size(s.RecvAsked), RecvGranted: size(s.RecvGranted), SendAsked: size(s.SendAsked), SendGranted: size(s.SendGranted),
		},
		Plane: s.Plane, Drops: s.Drops, PacketsIn: s.PacketsIn, PacketsOut: s.PacketsOut,
	}
	if s.Plane == transport.PlaneQUIC {
		d.GRO, d.GSO = report.Ptr(s.GRO), report.Ptr(s.GSO)
	}
	return d
}
