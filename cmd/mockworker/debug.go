package main

import (
	"net/http"
	"time"

	"github.com/laneway-ai/laneway/internal/program/admin"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/planepage"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// debugView is what /debug/plane shows of a worker process. What it has in common with a frontend's has the same names;
// sockets have the shape of a run report's.
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
	Rates   planepage.Rates          `json:"rates"`
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
	planepage.Socket
	Plane      string `json:"plane"`
	Drops      uint64 `json:"drops"`
	PacketsIn  uint64 `json:"packets_in"`
	PacketsOut uint64 `json:"packets_out"`
}

func (p *process) serveDebug(w http.ResponseWriter, r *http.Request) {
	page, err := planepage.Wants(w, r)
	var refresh *planepage.Refresh
	if err == nil {
		refresh, err = planepage.RefreshOf(r)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	at, sockets := time.Now(), p.sockets()
	d := p.debug(at, sockets)
	if !page {
		admin.WriteJSON(w, d)
		return
	}
	v := planepage.Worker{Process: d.Process, NotReady: d.Reason, At: at, Model: d.Model, Node: d.Node.ID,
		Stats: d.Stats, Rates: d.Rates, Sockets: sockets, Settings: d.Settings, Config: d.Config, Refresh: refresh}
	for _, e := range d.Engines {
		v.Engines = append(v.Engines, planepage.Engine(e))
	}
	v.Page().Serve(w, http.StatusOK)
}

func (p *process) sockets() []transport.SocketInfo {
	var all []transport.SocketInfo
	for _, t := range p.transports {
		all = append(all, t.Sockets()...)
	}
	return all
}

func (p *process) debug(at time.Time, sockets []transport.SocketInfo) debugView {
	d := debugView{
		Process: p.s.name, Ready: true, Model: p.s.model, Node: p.worker.Descriptor(), Stats: p.worker.Stats(),
		Config:  p.s.values,
		Engines: make([]debugEngine, len(p.engines)), Sockets: []debugSocket{},
	}
	d.Rates = p.rates.Rates(at, d.Stats)
	if err := p.ready(); err != nil {
		d.Ready, d.Reason = false, err.Error()
	}
	for i, e := range p.engines {
		running, waiting := e.Load()
		d.Engines[i] = debugEngine{Worker: p.workerID(i), Running: running, Waiting: waiting}
		d.Open += running + waiting
	}
	for _, s := range sockets {
		d.Sockets = append(d.Sockets, socketOf(p.s.name, s))
	}
	d.Settings = p.s.plane.InForce(sockets)
	return d
}

func socketOf(process string, s transport.SocketInfo) debugSocket {
	return debugSocket{
		Socket: planepage.SocketOf(process, s),
		Plane:  s.Plane, Drops: s.Drops, PacketsIn: s.PacketsIn, PacketsOut: s.PacketsOut,
	}
}
