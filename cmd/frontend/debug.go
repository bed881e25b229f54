package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/program/admin"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/planepage"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// planeState is a view of the plane at one moment.
type planeState struct {
	Workers []responseplane.WorkerStatus // ordered by id
	Stats   responseplane.Stats          // the plane's own counters
	Sockets []transport.SocketInfo
}

// inspector is a plane that knows its requests one by one.
type inspector interface {
	// Find describes the newest requests that are open or ended lately and have that id, and says how many there are.
	Find(id string, most int) (newest []responseplane.RequestInfo, n int)
	// Load is how the open requests do; it names the silent ones that have been without a record for longest.
	Load(silent int) responseplane.Load
}

func (p *livePlane) Find(id string, most int) ([]responseplane.RequestInfo, int) {
	return p.frontend.Find(id, most)
}

func (p *livePlane) Load(silent int) responseplane.Load { return p.frontend.Load(silent) }

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
	Sockets    []planepage.Socket           `json:"sockets"`
	Stats      responseplane.Stats          `json:"stats"`
	Rates      planepage.Rates              `json:"rates"`
	Load       debugLoad                    `json:"load"`
	Config     map[string]string            `json:"config"`
	Settings   []planeflags.Setting         `json:"settings"` // the transports', as asked for and in force
}

// debugLoad is how the open requests do.
type debugLoad struct {
	Routing   int     `json:"routing"`   // open requests that look for a worker
	Waiting   int     `json:"waiting"`   // for their first record
	Streaming int     `json:"streaming"` // with records
	Holders   int     `json:"holders"`
	ITL       float64 `json:"inter_token_latency_ms,omitempty"` // median
	// Processes are the worker processes by name.
	Processes []planepage.ProcessLoad `json:"processes"`
}

// debug answers what people and scripts ask of a running frontend.
type debug struct {
	s     settings
	plane plane
	front *frontend.Server
	rates *planepage.Keeper
}

func (d *debug) register(a *admin.Server) {
	a.Handle("GET "+planepage.PlanePath, http.HandlerFunc(d.servePlane))
	a.Handle("GET "+planepage.StreamsPath, http.HandlerFunc(d.findStream))
	a.Handle("GET "+planepage.StreamsPath+"/{id}", http.HandlerFunc(d.serveStream))
}

func (d *debug) servePlane(w http.ResponseWriter, r *http.Request) {
	page, refresh, ok := choice(w, r)
	if !ok {
		return
	}
	at, state := time.Now(), d.plane.State()
	var load responseplane.Load
	if i, ok := d.plane.(inspector); ok {
		load = i.Load(planepage.Silent)
	}
	v := d.view(at, state, load)
	if !page {
		admin.WriteJSON(w, v)
		return
	}
	f := planepage.Frontend{Process: v.Process, NotReady: v.Reason, At: at, Open: v.Open, Models: v.Models,
		OutPath: v.OutPath.InForce, NoRing: v.OutPath.NoRing, Workers: state.Workers,
		Stats: state.Stats, Load: load, Loads: v.Load.Processes, Rates: v.Rates, Sockets: state.Sockets,
		Settings: v.Settings, Config: v.Config, Refresh: refresh}
	f.Page().Serve(w, http.StatusOK)
}

// choice is what the reader wants to see; where that makes no sense it says so and is false.
func choice(w http.ResponseWriter, r *http.Request) (page bool, refresh *planepage.Refresh, ok bool) {
	page, err := planepage.Wants(w, r)
	if err == nil {
		refresh, err = planepage.RefreshOf(r)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false, nil, false
	}
	return page, refresh, true
}

func (d *debug) view(at time.Time, state planeState, load responseplane.Load) debugView {
	v := debugView{Process: d.s.name, Ready: true, Open: d.front.Open(), Models: d.plane.Models(),
		WorkerList: state.Workers, Stats: state.Stats, Rates: d.rates.Rates(at, state.Stats),
		Sockets: socketsOf(d.s.name, state.Sockets), Config: d.s.values, Settings: d.s.plane.InForce(state.Sockets)}
	v.Load = debugLoad{Routing: load.Routing, Waiting: load.Waiting, Streaming: load.Streaming,
		ITL:       float64(load.ITL) / float64(time.Millisecond),
		Processes: planepage.Loads(state.Workers, load)}
	v.Load.Holders = planepage.Holders(v.Load.Processes)
	if err := d.front.Ready(); err != nil {
		v.Ready, v.Reason = false, err.Error()
	}
	path, why := d.front.OutPath()
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
	return v
}

// serveStream shows the newest request with an id, and names the others.
func (d *debug) serveStream(w http.ResponseWriter, r *http.Request) {
	page, refresh, ok := choice(w, r)
	if !ok {
		return
	}
	id := r.PathValue("id")
	var newest []responseplane.RequestInfo
	n := 0
	if i, ok := d.plane.(inspector); ok {
		newest, n = i.Find(id, planepage.Newest)
	}
	known := n > 0
	switch {
	case known && page:
		planepage.NewStream(newest, n).Page(refresh).Serve(w, http.StatusOK)
	case known:
		admin.WriteJSON(w, planepage.NewStream(newest, n))
	case page:
		planepage.Missing(id).Serve(w, http.StatusNotFound)
	default:
		http.Error(w, planepage.MissingText(id), http.StatusNotFound)
	}
}

// findStream takes the page's form to the request that it names.
func (d *debug) findStream(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimSpace(r.URL.Query().Get("id"))
	if id == "" {
		http.Error(w, fmt.Sprintf("name a request: %s/ID, or %s?id=ID; the id is the response's x-request-id header",
			planepage.StreamsPath, planepage.StreamsPath), http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, planepage.StreamPath(id), http.StatusSeeOther)
}

// socketsOf are the sockets of the frontend as they stand in a run report.
func socketsOf(process string, in []transport.SocketInfo) []planepage.Socket {
	out := make([]planepage.Socket, len(in))
	for i, k := range in {
		out[i] = planepage.SocketOf(process, k)
	}
	return out
}
