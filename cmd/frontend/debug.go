package main

import (
	"net/http"
	"strings"

	"github.com/laneway-ai/laneway/internal/admin"
	"github.com/laneway-ai/laneway/internal/httpfront"
	"github.com/laneway-ai/laneway/internal/planeflags"
	"github.com/laneway-ai/laneway/internal/report"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// planeState is a view of the plane at one moment.
type planeState struct {
	Workers []responseplane.WorkerStatus // ordered by id
	Stats   any                          // the plane's own counters
	Sockets []transport.SocketInfo
}

// debugView is what /debug/plane shows. cmd/cluster polls workers.reachable; sockets have the shape of a run report's.
type debugView struct {
	Process string `json:"process"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"` // why not
	Open    int    `json:"open_requests"`
	Workers struct {
		Known     int `json:"known"`
		Reachable int `json:"reachable"`
		Vanished  int `json:"vanished"` // their record has gone; not among the known
	} `json:"workers"`
	OutPath struct {
		InForce string `json:"in_force"`              // pull, inline or io_uring
		NoRing  string `json:"no_io_uring,omitempty"` // why not, where it was wanted
	} `json:"out_path"`
	Models     []string                     `json:"models"`
	WorkerList []responseplane.WorkerStatus `json:"worker_list"`
	Sockets    []report.Socket              `json:"sockets"`
	Stats      any                          `json:"stats"`
	Config     map[string]string            `json:"config"`
	Settings   []planeflags.Setting         `json:"settings"` // the transports', as asked for and in force
}

func debugPlane(s settings, p plane, front *httpfront.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		state := p.State()
		v := debugView{Process: s.name, Ready: true, Open: front.Open(), Models: p.Models(), WorkerList: state.Workers, Stats: state.Stats,
			Sockets: sockets(s.name, state.Sockets), Config: s.values, Settings: s.plane.InForce(state.Sockets)}
		if err := front.Ready(); err != nil {
			v.Ready, v.Reason = false, err.Error()
		}
		path, why := front.OutPath()
		if v.OutPath.InForce = string(path); why != nil {
			v.OutPath.NoRing = why.Error()
		}
		for _, k := range state.Workers {
			if k.Vanished {
				v.Workers.Vanished++
				continue
			}
			v.Workers.Known++
			if k.Reachable {
				v.Workers.Reachable++
			}
		}
		admin.WriteJSON(w, v)
	})
}

// sockets puts what the transports say into the shape of a run report. What a plane does not have is left out.
func sockets(process string, in []transport.SocketInfo) []report.Socket {
	out := make([]report.Socket, 0, len(in))
	size := func(n int) *int64 { return report.Ptr(int64(n)) }
	for _, k := range in {
		r := report.Socket{Process: process, Role: k.Role, Port: k.Port}
		if k.RecvAsked > 0 {
			r.RecvAsked = size(k.RecvAsked)
		}
		if k.SendAsked > 0 {
			r.SendAsked = size(k.SendAsked)
		}
		if k.RecvGranted > 0 {
			r.RecvGranted = size(k.RecvGranted)
		}
		if k.SendGranted > 0 {
			r.SendGranted = size(k.SendGranted)
		}
		if strings.HasPrefix(k.Plane, transport.PlaneQUIC) {
			r.GRO, r.GSO = report.Ptr(k.GRO), report.Ptr(k.GSO)
		}
		out = append(out, r)
	}
	return out
}
